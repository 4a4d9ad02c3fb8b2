#include "kernels/attention/softmax_rows.h"
#include "kernels/common/block_reduce.cuh"
#include "kernels/common/float_types.cuh"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

struct Row {
  int64_t i;             // position in the sequence
  int64_t first, count;  // its keys
  int64_t at;            // offset of the row in s, p, dp, ds
};
__device__ __forceinline__ Row ThisRow(const SoftmaxRows& g) {
  const int64_t i = g.row0 + blockIdx.x;
  const int64_t first = g.document_start != nullptr ? g.document_start[i] : 0;
  return {i, first, i + 1 - first, int64_t{blockIdx.y} * g.stride + int64_t{blockIdx.x} * g.ld};
}

// s and p may be the same memory: each element is read and written by one thread, in that order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    SoftmaxForwardKernel(const __grid_constant__ SoftmaxRows g, const Accum<T>* s, T* p, Accum<T>* lse) {
  using A = Accum<T>;
  __shared__ A shared[kThreads / 32];
  const Row r = ThisRow(g);
  const A* in = s + r.at;
  T* out = p + r.at;
  A largest = -INFINITY;
  for (int64_t j = r.first + threadIdx.x; j <= r.i; j += kThreads) largest = MaxOp()(largest, in[j]);
  largest = BlockReduce<kThreads>(largest, shared, MaxOp());
  A sum = 0;
  for (int64_t j = r.first + threadIdx.x; j <= r.i; j += kThreads) sum += exp(in[j] - largest);
  sum = BlockReduce<kThreads>(sum, shared, SumOp());
  if (threadIdx.x == 0) lse[blockIdx.y * g.lse_stride + r.i] = largest + log(sum);
  const A inverse = A{1} / sum;
  for (int64_t j = threadIdx.x; j < g.keys; j += kThreads) {
    const bool seen = j >= r.first && j <= r.i;
    out[j] = FromAccum<T>(seen ? exp(in[j] - largest) * inverse : A{0});
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    SoftmaxBackwardKernel(const __grid_constant__ SoftmaxBackwardRows g, const Accum<T>* s, const Accum<T>* dp,
                          const Accum<T>* lse, const T* o, const T* d_o, T* p, T* ds) {
  using A = Accum<T>;
  __shared__ A shared[kThreads / 32];
  const Row r = ThisRow(g.base);
  const int64_t o_at = r.i * g.row_stride + blockIdx.y * g.batch_stride;
  A delta = 0;
  for (int64_t c = threadIdx.x; c < g.V; c += kThreads) delta += ToAccum(o[o_at + c]) * ToAccum(d_o[o_at + c]);
  delta = BlockReduce<kThreads>(delta, shared, SumOp());
  const A logsum = lse[blockIdx.y * g.base.lse_stride + r.i];
  for (int64_t j = threadIdx.x; j < g.base.keys; j += kThreads) {
    A prob = 0, gradient = 0;
    if (j >= r.first && j <= r.i) {
      prob = exp(s[r.at + j] - logsum);
      gradient = prob * (dp[r.at + j] - delta);
    }
    p[r.at + j] = FromAccum<T>(prob);
    ds[r.at + j] = FromAccum<T>(gradient);
  }
}

dim3 Grid(const SoftmaxRows& g) { return dim3(static_cast<unsigned>(g.rows), static_cast<unsigned>(g.batch)); }

}  // namespace

cudaError_t SoftmaxForward(KernelType type, const SoftmaxRows& g, const void* s, void* p, void* lse, cudaStream_t stream) {
  if (g.rows == 0 || g.batch == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    using A = Accum<T>;
    SoftmaxForwardKernel<T><<<Grid(g), kThreads, 0, stream>>>(g, static_cast<const A*>(s), static_cast<T*>(p),
                                                             static_cast<A*>(lse));
    return cudaGetLastError();
  });
}

cudaError_t SoftmaxBackward(KernelType type, const SoftmaxBackwardRows& g, const void* s, const void* dp, const void* lse,
                            const void* o, const void* d_o, void* p, void* ds, cudaStream_t stream) {
  if (g.base.rows == 0 || g.base.batch == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    using A = Accum<T>;
    SoftmaxBackwardKernel<T><<<Grid(g.base), kThreads, 0, stream>>>(
        g, static_cast<const A*>(s), static_cast<const A*>(dp), static_cast<const A*>(lse), static_cast<const T*>(o),
        static_cast<const T*>(d_o), static_cast<T*>(p), static_cast<T*>(ds));
    return cudaGetLastError();
  });
}

}  // namespace yardmaster
