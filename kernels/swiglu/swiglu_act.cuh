// File: kernels/swiglu/swiglu_act.cuh
//
// The weighted SwiGLU of one element, for every kernel that computes it: the same products in the same order, the same bits.
#pragma once

#include <cuda_runtime.h>

namespace yardmaster {

template <class A>
__device__ __forceinline__ A Sigmoid(A z) {
  return A{1} / (A{1} + exp(-z));
}

template <class A>
__device__ __forceinline__ A SwigluAct(A w, A g, A u) {
  return w * (g * Sigmoid(g)) * u;
}

}  // namespace yardmaster
