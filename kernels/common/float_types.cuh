// File: kernels/common/float_types.cuh
//
// One set of conversions for BF16, FP32 and FP64 elements, and calling a template by KernelType. BF16 computes in FP32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

template <class T> struct AccumOf { using type = T; };
template <> struct AccumOf<__nv_bfloat16> { using type = float; };
template <class T> using Accum = typename AccumOf<T>::type;

template <class T> __device__ __forceinline__ Accum<T> ToAccum(T x) { return x; }
template <> __device__ __forceinline__ float ToAccum(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds to nearest even.
template <class T, class A> __device__ __forceinline__ T FromAccum(A x) { return static_cast<T>(x); }
template <> __device__ __forceinline__ __nv_bfloat16 FromAccum<__nv_bfloat16, float>(float x) { return __float2bfloat16_rn(x); }

// f.template operator()<T>() with T the element type.
template <class F>
cudaError_t DispatchKernelType(KernelType t, F&& f) {
  switch (t) {
    case KernelType::kBf16: return f.template operator()<__nv_bfloat16>();
    case KernelType::kF32: return f.template operator()<float>();
    case KernelType::kF64: return f.template operator()<double>();
  }
  return cudaErrorInvalidValue;
}

}  // namespace yardmaster
