#include "kernels/common/block_reduce.cuh"
#include "kernels/common/counting_sort.cuh"
#include "kernels/router/experts_of_warp.cuh"
#include "kernels/router/router_capacity.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 1024;
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;

// Keys in the order of the weights: larger weight, larger key.
__device__ __forceinline__ uint32_t KeyOf(float w) {
  if (w != w) return 0;
  const uint32_t bits = __float_as_uint(w == 0 ? 0.0f : w);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ uint64_t KeyOf(double w) {
  if (w != w) return 0;
  const auto bits = static_cast<uint64_t>(__double_as_longlong(w == 0 ? 0.0 : w));
  return bits >> 63 != 0 ? ~bits : bits | uint64_t{1} << 63;
}

// First places of the experts, and the number of pairs over capacity.
__global__ void __launch_bounds__(kThreads) StartsKernel(CapacityPairs g) {
  __shared__ int64_t shared[kThreads / 32];
  int64_t over = 0;
  for (int64_t e = threadIdx.x; e < g.experts; e += kThreads)
    over += g.starts[e] > g.capacity ? g.starts[e] - g.capacity : 0;
  over = BlockReduce<kThreads>(over, shared, SumOp());
  const int64_t total = sort_internal::BlockScan<kThreads>(
      g.experts, shared, [&](int64_t e) { return g.starts[e]; },
      [&](int64_t e, int64_t first) { g.starts[e] = first; });
  if (threadIdx.x != 0) return;
  g.starts[g.experts] = total;
  if (g.dropped != nullptr) *g.dropped += static_cast<double>(over);
}

struct WritePair {
  int64_t* by_expert;
  int32_t* kept;
  __device__ __forceinline__ void operator()(int64_t pair, int64_t place) const {
    if (place >= 0) {
      by_expert[place] = pair;
    } else {
      kept[pair] = -1;
    }
  }
};

// One block per expert.
template <class A>
__global__ void __launch_bounds__(kThreads) KeepKernel(CapacityPairs g, const A* w) {
  using Key = decltype(KeyOf(A{}));
  __shared__ int64_t shared[kThreads / 32];
  __shared__ int counts[kDigits];
  __shared__ int64_t wanted_there;
  __shared__ int digit_there;
  const int64_t first = g.starts[blockIdx.x], n = g.starts[blockIdx.x + 1] - first;
  const int64_t* pairs = g.by_expert + first;
  const auto expert = static_cast<int32_t>(blockIdx.x);
  if (n <= g.capacity || !g.by_weight || g.capacity == 0) {
    for (int64_t i = threadIdx.x; i < n; i += kThreads) g.kept[pairs[i]] = i < g.capacity ? expert : -1;
    return;
  }
  // After each digit: `least` holds the upper digits of the C-th largest key, and `wanted` of the pairs that
  // share these are kept.
  Key least = 0, known = 0;
  int64_t wanted = g.capacity;
  for (int shift = static_cast<int>(sizeof(Key)) * 8 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kThreads) counts[d] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += kThreads) {
      const Key key = KeyOf(w[pairs[i]]);
      if ((key & known) == least) atomicAdd(&counts[key >> shift & (kDigits - 1)], 1);
    }
    __syncthreads();
    // From the largest digit down; exactly one holds the wanted-th.
    sort_internal::BlockScan<kThreads>(
        kDigits, shared, [&](int64_t i) { return int64_t{counts[kDigits - 1 - i]}; },
        [&](int64_t i, int64_t larger) {
          const int digit = kDigits - 1 - static_cast<int>(i);
          if (larger < wanted && wanted <= larger + counts[digit])
            wanted_there = wanted - larger, digit_there = digit;
        });
    wanted = wanted_there;
    least |= static_cast<Key>(digit_there) << shift;
    known |= static_cast<Key>(kDigits - 1) << shift;
    __syncthreads();  // read by all before the next digit's are written
  }
  sort_internal::BlockScan<kThreads>(
      n, shared, [&](int64_t i) { return int64_t{KeyOf(w[pairs[i]]) == least}; },
      [&](int64_t i, int64_t equal_before) {
        const Key key = KeyOf(w[pairs[i]]);
        g.kept[pairs[i]] = key > least || (key == least && equal_before < wanted) ? expert : -1;
      });
}

}  // namespace

cudaError_t KeepWithinCapacity(KernelType type, const CapacityPairs& g, const void* w, cudaStream_t stream) {
  if (g.pairs == 0) return cudaSuccess;
  const SortKeys keys{.keys = g.idx,
                      .order = nullptr,
                      .n = g.pairs,
                      .first = 0,
                      .shift = 0,
                      .mask = -1,
                      .bins = g.experts,
                      .chunk = g.chunk};
  if (const cudaError_t result = CountByBin(keys, g.prefix, g.starts, stream); result != cudaSuccess)
    return result;
  StartsKernel<<<1, kThreads, 0, stream>>>(g);
  if (const cudaError_t result =
          ScatterByBin(keys, g.prefix, g.starts, WritePair{g.by_expert, g.kept}, stream);
      result != cudaSuccess)
    return result;
  return DispatchFloating(type, [&]<class A>() {
    KeepKernel<A><<<static_cast<unsigned>(g.experts), kThreads, 0, stream>>>(g, static_cast<const A*>(w));
    return cudaGetLastError();
  });
}

}  // namespace yardmaster
