// File: kernels/common/block_reduce.cuh
//
// Reductions over a warp or a block in a fixed order: the same bits in every run. Every thread gets the result.
#pragma once

#include <cuda_runtime.h>

namespace yardmaster {

struct SumOp {
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};
struct MaxOp {
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a > b ? a : b; }
};

template <class T, class Op>
__device__ __forceinline__ T WarpReduce(T x, Op op) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x = op(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// kThreads is a multiple of 32; `shared` holds kThreads / 32 values and may be used again after the call.
template <int kThreads, class T, class Op>
__device__ __forceinline__ T BlockReduce(T x, T* shared, Op op) {
  constexpr int kWarps = kThreads / 32;
  x = WarpReduce(x, op);
  if constexpr (kWarps == 1) return x;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0) shared[warp] = x;
  __syncthreads();
  T result = shared[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) result = op(result, shared[w]);
  __syncthreads();
  return result;
}

}  // namespace yardmaster
