// File: kernels/router/experts_of_warp.cuh
//
// A token per warp: lane l holds the values of experts l, l + 32, ... in registers. What the router's kernels
// share over them.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "kernels/common/kernel_type.h"
#include "kernels/router/router.h"

namespace yardmaster {

__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }

// The id of the largest value over the warp; the lower id on ties.
template <class A>
__device__ __forceinline__ int WarpLargest(A value, int id) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    const A other = __shfl_xor_sync(0xffffffffu, value, offset);
    const int other_id = __shfl_xor_sync(0xffffffffu, id, offset);
    if (other > value || (other == value && other_id < id)) value = other, id = other_id;
  }
  return id;
}

// The top_k largest among the experts whose bit is set in `open` (bit j: expert j * 32 + lane); ties: the
// lower id. No value is NaN. Returns this lane's bits.
template <int kHeld, class A>
__device__ __forceinline__ unsigned ChooseLargest(const A (&value)[kHeld], unsigned open, int top_k) {
  unsigned chosen = 0;
  for (int k = 0; k < top_k; ++k) {
    A best = -INFINITY;
    int id = kHeld * 32 + Lane();  // beyond every expert
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int e = j * 32 + Lane();
      if ((open >> j & 1) != 0 && (value[j] > best || (value[j] == best && e < id))) best = value[j], id = e;
    }
    id = WarpLargest(best, id);
    if (id % 32 == Lane()) {
      chosen |= 1u << (id / 32);
      open &= ~(1u << (id / 32));
    }
  }
  return chosen;
}

// f.template operator()<A>() with A the accumulator type.
template <class F>
cudaError_t DispatchFloating(KernelType type, F&& f) {
  if (type == KernelType::kF32) return f.template operator()<float>();
  if (type == KernelType::kF64) return f.template operator()<double>();
  return cudaErrorInvalidValue;
}

// f.template operator()<kHeld>(): experts per lane.
template <class F>
cudaError_t DispatchHeld(int experts, F&& f) {
  if (experts <= 256) return f.template operator()<8>();
  return f.template operator()<kRouterMaxExperts / 32>();
}

}  // namespace yardmaster
