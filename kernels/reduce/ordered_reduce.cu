#include <algorithm>

#include "kernels/common/pack.cuh"
#include "kernels/reduce/ordered_reduce.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

template <class T>
__device__ __forceinline__ T Larger(T a, T b) {
  if (b != b) return b;  // NaN; never true of an integer
  if (a != a) return a;
  return a > b ? a : b;
}

template <class T, int kWidth, bool kMaximum>
__global__ void __launch_bounds__(kThreads) OrderedReduceKernel(OrderedReduceArgs g) {
  const T* parts = static_cast<const T*>(g.parts);
  const T* own = static_cast<const T*>(g.own_values);
  const int64_t step = int64_t{gridDim.x} * kThreads * kWidth;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth; i < g.n; i += step) {
    const auto values = [&](int r) {
      return LoadPack<kWidth>(r == g.own ? own + i : parts + (r - (r > g.own)) * g.stride + i);
    };
    Pack<T, kWidth> sum = values(0);
    for (int r = 1; r < g.ranks; ++r) {
      const Pack<T, kWidth> next = values(r);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if constexpr (kMaximum) {
          sum.x[j] = Larger(sum.x[j], next.x[j]);
        } else {
          sum.x[j] += next.x[j];
        }
      }
    }
    StorePack<kWidth>(static_cast<T*>(g.out) + i, sum);
  }
}

template <class T>
cudaError_t Launch(const OrderedReduceArgs& g, cudaStream_t stream) {
  constexpr int kWide = kPackWidth<T>;
  const bool wide = PacksFit(kWide, {g.parts, g.own_values, g.out}, {g.n, g.stride});
  const int64_t packs = wide ? g.n / kWide : g.n;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((packs + kThreads - 1) / kThreads, 132 * 8));
  if (wide && g.maximum) OrderedReduceKernel<T, kWide, true><<<blocks, kThreads, 0, stream>>>(g);
  if (wide && !g.maximum) OrderedReduceKernel<T, kWide, false><<<blocks, kThreads, 0, stream>>>(g);
  if (!wide && g.maximum) OrderedReduceKernel<T, 1, true><<<blocks, kThreads, 0, stream>>>(g);
  if (!wide && !g.maximum) OrderedReduceKernel<T, 1, false><<<blocks, kThreads, 0, stream>>>(g);
  return cudaGetLastError();
}

}  // namespace

cudaError_t OrderedReduce(const OrderedReduceArgs& g, cudaStream_t stream) {
  if (g.n == 0) return cudaSuccess;
  switch (g.type) {
    case ReduceType::kF32:
      return Launch<float>(g, stream);
    case ReduceType::kF64:
      return Launch<double>(g, stream);
    case ReduceType::kI32:
      return Launch<int32_t>(g, stream);
    case ReduceType::kI64:
      return Launch<int64_t>(g, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace yardmaster
