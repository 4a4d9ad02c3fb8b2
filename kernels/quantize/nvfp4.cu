#include "kernels/common/float_types.cuh"
#include "kernels/quantize/codes.cuh"
#include "kernels/quantize/nvfp4.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256, kRun = 16;

template <class T>
__device__ __forceinline__ uint32_t MagnitudeBits(T v) {
  return __float_as_uint(ToAccum(v)) & 0x7FFFFFFFu;
}

// What values are multiplied by so that the tensor's largest is 6 * 448, at most 2^100.
__device__ __forceinline__ float TensorInverse(float amax) {
  return amax > 0 ? fminf(__fdiv_rn(6.0f * 448.0f, amax), 0x1p100f) : 1.0f;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    AbsMaxKernel(const T* x, int64_t R, int64_t C, int64_t ld, uint32_t* out) {
  uint32_t largest = 0;
  for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
    for (int64_t c = threadIdx.x; c < C; c += kThreads) largest = max(largest, MagnitudeBits(x[r * ld + c]));
  }
  largest = __reduce_max_sync(~0u, largest);
  if (threadIdx.x % 32 == 0) atomicMax(out, largest);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    QuantizeKernel(const T* x, int64_t runs_per_row, int64_t runs, int64_t ld, const float* amax,
                   uint2* codes, uint8_t* scales) {
  const int64_t run = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (run >= runs) return;
  const float tensor_amax = *amax;
  union {
    uint4 packed[kRun * sizeof(T) / 16];
    T v[kRun];
  } in;
  const uint4* from = reinterpret_cast<const uint4*>(x + run / runs_per_row * ld + run % runs_per_row * kRun);
#pragma unroll
  for (size_t k = 0; k < sizeof(in) / 16; ++k) in.packed[k] = from[k];
  uint32_t largest = 0;
#pragma unroll
  for (int j = 0; j < kRun; ++j) largest = max(largest, MagnitudeBits(in.v[j]));
  uint8_t scale = 0x7F;  // E2M1 has no NaN: the scale says it
  float inverse = 0;
  if ((__float_as_uint(tensor_amax) & 0x7FFFFFFFu) < kInfinityBits && largest < kInfinityBits) {
    const float to_tensor = TensorInverse(tensor_amax);
    scale = static_cast<uint8_t>(E4m3x2(__fdiv_rn(__uint_as_float(largest) * to_tensor, 6.0f), 0));
    if (scale != 0) inverse = __fdiv_rn(to_tensor, E4m3ToFloat(scale));
  }
  uint32_t word[2] = {};
  if (inverse != 0) {
#pragma unroll
    for (int j = 0; j < kRun; ++j) word[j / 8] |= E2m1(ToAccum(in.v[j]) * inverse) << 4 * (j % 8);
  }
  codes[run] = {word[0], word[1]};
  scales[run] = scale;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    DequantizeKernel(const uint8_t* codes, const uint8_t* scales, const float* amax, int64_t pairs, T* out) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= pairs) return;
  const float a = *amax, scale = E4m3ToFloat(scales[i / (kRun / 2)]);
  const float tensor =
      (__float_as_uint(a) & 0x7FFFFFFFu) >= kInfinityBits ? 1.0f : __fdiv_rn(1.0f, TensorInverse(a));
  const uint32_t pair = codes[i];
  out[2 * i] = FromAccum<T>(E2m1ToFloat(pair & 15u) * scale * tensor);
  out[2 * i + 1] = FromAccum<T>(E2m1ToFloat(pair >> 4) * scale * tensor);
}

template <class F>
cudaError_t Dispatch(KernelType type, F&& f) {
  if (type == KernelType::kBf16) return f.template operator()<__nv_bfloat16>();
  if (type == KernelType::kF32) return f.template operator()<float>();
  return cudaErrorInvalidValue;
}

unsigned Blocks(int64_t items) { return static_cast<unsigned>((items + kThreads - 1) / kThreads); }

}  // namespace

cudaError_t AbsMaxOfMatrix(KernelType type, const void* x, int64_t R, int64_t C, int64_t ld, float* out,
                           cudaStream_t stream) {
  const cudaError_t cleared = cudaMemsetAsync(out, 0, sizeof(float), stream);
  if (cleared != cudaSuccess || R == 0 || C == 0) return cleared;
  return Dispatch(type, [&]<class T>() {
    AbsMaxKernel<<<static_cast<unsigned>(R < 132 * 8 ? R : 132 * 8), kThreads, 0, stream>>>(
        static_cast<const T*>(x), R, C, ld, reinterpret_cast<uint32_t*>(out));
    return cudaGetLastError();
  });
}

cudaError_t QuantizeNvfp4Rows(KernelType type, const void* x, int64_t R, int64_t C, int64_t ld,
                              const float* amax, uint8_t* codes, uint8_t* scales, cudaStream_t stream) {
  const int64_t runs = R * (C / kRun);
  if (runs == 0) return cudaSuccess;
  return Dispatch(type, [&]<class T>() {
    QuantizeKernel<<<Blocks(runs), kThreads, 0, stream>>>(static_cast<const T*>(x), C / kRun, runs, ld, amax,
                                                          reinterpret_cast<uint2*>(codes), scales);
    return cudaGetLastError();
  });
}

cudaError_t DequantizeNvfp4Rows(KernelType type, const uint8_t* codes, const uint8_t* scales,
                                const float* amax, int64_t R, int64_t C, void* out, cudaStream_t stream) {
  const int64_t pairs = R * C / 2;
  if (pairs == 0) return cudaSuccess;
  return Dispatch(type, [&]<class T>() {
    DequantizeKernel<<<Blocks(pairs), kThreads, 0, stream>>>(codes, scales, amax, pairs,
                                                             static_cast<T*>(out));
    return cudaGetLastError();
  });
}

}  // namespace yardmaster
