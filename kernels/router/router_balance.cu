#include "kernels/common/block_reduce.cuh"
#include "kernels/router/experts_of_warp.cuh"
#include "kernels/router/router_balance.h"

namespace yardmaster {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kSumThreads = 1024;

// Tokens [begin, end) of all sequences that a block takes, and their sequence.
struct Chunk {
  int64_t sequence, begin, end;
};
__device__ __forceinline__ Chunk ChunkOf(const BalanceShape& g) {
  const int64_t chunks = g.chunks(), b = blockIdx.x / chunks, begin = blockIdx.x % chunks * g.chunk,
                end = begin + g.chunk;
  return {b, b * g.tokens + begin, b * g.tokens + (end < g.tokens ? end : g.tokens)};
}

template <class A>
__device__ __forceinline__ double WarpLogSumExp(const A* z, int experts) {
  double largest = -INFINITY, sum = 0;
  for (int e = Lane(); e < experts; e += 32) largest = max(largest, static_cast<double>(z[e]));
  largest = WarpReduce(largest, MaxOp());
  for (int e = Lane(); e < experts; e += 32) sum += exp(static_cast<double>(z[e]) - largest);
  return largest + log(WarpReduce(sum, SumOp()));
}

template <class A>
__device__ __forceinline__ double WarpSum(const A* s, int experts) {
  double sum = 0;
  for (int e = Lane(); e < experts; e += 32) sum += static_cast<double>(s[e]);
  return WarpReduce(sum, SumOp());
}

// The sum of previous, by a whole block; 0: nothing is known yet.
template <int kBlock>
__device__ __forceinline__ int64_t TotalOf(const int64_t* previous, int experts, int64_t* shared) {
  int64_t total = 0;
  for (int e = static_cast<int>(threadIdx.x); previous != nullptr && e < experts; e += kBlock)
    total += previous[e];
  return BlockReduce<kBlock>(total, shared, SumOp());
}
__device__ __forceinline__ double Fraction(const int64_t* previous, int64_t total, int e, int experts) {
  return total > 0 ? experts * static_cast<double>(previous[e]) / static_cast<double>(total) : 1.0;
}

template <class A, int kHeld>
__global__ void __launch_bounds__(kThreads)
    CountKernel(BalanceShape g, const A* scores, const A* logits, int64_t* load, BalanceScratch scratch) {
  __shared__ double masses[kWarps][kHeld * 32];
  __shared__ double squares[kWarps];
  __shared__ int counts[kHeld * 32];
  const Chunk chunk = ChunkOf(g);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int e = static_cast<int>(threadIdx.x); e < kHeld * 32; e += kThreads) counts[e] = 0;
  __syncthreads();
  unsigned exists = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) exists |= (j * 32 + Lane() < g.experts ? 1u : 0u) << j;
  double mass[kHeld] = {}, squared = 0;
  for (int64_t t = chunk.begin + warp; t < chunk.end; t += kWarps) {
    const A* s = scores + t * g.experts;
    A choice[kHeld];
    const double sum = WarpSum(s, g.experts);
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const A value = (exists >> j & 1) != 0 ? s[j * 32 + Lane()] : A{0};
      mass[j] += static_cast<double>(value) / sum;
      choice[j] = value == value ? value : static_cast<A>(-INFINITY);
    }
    const unsigned chosen = ChooseLargest(choice, exists, g.top_k);
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      if ((chosen >> j & 1) != 0) atomicAdd(&counts[j * 32 + Lane()], 1);
    }
    if (logits != nullptr) {
      const double lse = WarpLogSumExp(logits + t * g.experts, g.experts);
      squared += lse * lse;
    }
  }
#pragma unroll
  for (int j = 0; j < kHeld; ++j) masses[warp][j * 32 + Lane()] = mass[j];
  if (Lane() == 0) squares[warp] = squared;
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < g.experts; e += kThreads) {
    if (counts[e] != 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(load + chunk.sequence * g.experts + e),
                static_cast<unsigned long long>(counts[e]));
    }
    if (scratch.mass == nullptr) continue;
    double sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += masses[w][e];
    scratch.mass[int64_t{blockIdx.x} * g.experts + e] = sum;
  }
  if (scratch.squares == nullptr || threadIdx.x != 0) return;
  double sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += squares[w];
  scratch.squares[blockIdx.x] = sum;
}

// One block; a warp per expert adds the chunks of each sequence.
__global__ void __launch_bounds__(kSumThreads)
    SumKernel(BalanceShape g, const int64_t* previous, const int64_t* load, BalanceScratch scratch,
              double* sums) {
  __shared__ double shared[kSumThreads / 32];
  __shared__ int64_t shared_total[kSumThreads / 32];
  const int64_t chunks = g.chunks(), total = TotalOf<kSumThreads>(previous, g.experts, shared_total);
  double sequence = 0, micro = 0, global = 0, squares = 0;  // of the experts of this warp
  for (int e = static_cast<int>(threadIdx.x) / 32; e < g.experts; e += kSumThreads / 32) {
    double all_mass = 0, all_load = 0;
    for (int64_t b = 0; b < g.sequences; ++b) {
      double mass = 0;
      for (int64_t c = b * chunks + Lane(); c < (b + 1) * chunks; c += 32)
        mass += scratch.mass[c * g.experts + e];
      mass = WarpReduce(mass, SumOp());
      const double counted = static_cast<double>(load[b * g.experts + e]);
      sequence += mass * counted;
      all_mass += mass;
      all_load += counted;
    }
    micro += all_mass * all_load;
    global += all_mass * Fraction(previous, total, e, g.experts);
  }
  for (int64_t c = threadIdx.x; c < g.sequences * chunks; c += kSumThreads) squares += scratch.squares[c];
  const auto over_warps = [&](double x) {
    return BlockReduce<kSumThreads>(Lane() == 0 ? x : 0.0, shared, SumOp());
  };
  sequence = over_warps(sequence);
  micro = over_warps(micro);
  global = over_warps(global);
  squares = BlockReduce<kSumThreads>(squares, shared, SumOp());
  if (threadIdx.x != 0) return;
  const double E = g.experts, K = g.top_k, S = static_cast<double>(g.tokens),
               B = static_cast<double>(g.sequences), T = S * B;
  sums[0] += g.share * sequence * E / (K * S * S * B);
  sums[1] += g.share * micro * E / (K * T * T);
  sums[2] += g.share * global / T;
  sums[3] += g.share * squares / T;
}

template <class A>
__global__ void __launch_bounds__(kThreads)
    BackwardKernel(BalanceShape g, BalanceWeights w, const A* scores, const A* logits,
                   const int64_t* previous, const int64_t* load, A* dlogits) {
  __shared__ double slope[kRouterMaxExperts];  // d(weighted losses) / d(normalised score)
  __shared__ int64_t shared_total[kWarps];
  const Chunk chunk = ChunkOf(g);
  const int64_t total = TotalOf<kThreads>(previous, g.experts, shared_total);
  const double E = g.experts, K = g.top_k, S = static_cast<double>(g.tokens),
               B = static_cast<double>(g.sequences), T = S * B;
  for (int e = static_cast<int>(threadIdx.x); e < g.experts; e += kThreads) {
    double all = 0;
    for (int64_t b = 0; b < g.sequences; ++b) all += static_cast<double>(load[b * g.experts + e]);
    const double own = static_cast<double>(load[chunk.sequence * g.experts + e]);
    slope[e] = g.share * (w.sequence * E * own / (K * S * S * B) + w.micro_batch * E * all / (K * T * T) +
                          w.global_batch * Fraction(previous, total, e, g.experts) / T);
  }
  __syncthreads();
  for (int64_t t = chunk.begin + threadIdx.x / 32; t < chunk.end; t += kWarps) {
    const A* s = scores + t * g.experts;
    const A* z = w.z != 0 ? logits + t * g.experts : nullptr;
    const double sum = WarpSum(s, g.experts);
    double mean = 0;
    for (int e = Lane(); e < g.experts; e += 32) mean += static_cast<double>(s[e]) / sum * slope[e];
    mean = WarpReduce(mean, SumOp());
    const double lse = z != nullptr ? WarpLogSumExp(z, g.experts) : 0;
    for (int e = Lane(); e < g.experts; e += 32) {
      const double score = static_cast<double>(s[e]),
                   inner = g.scoring == RouterScoring::kSoftmax ? score : score * (1 - score);
      double gradient = (slope[e] - mean) / sum * inner;
      if (z != nullptr) gradient += g.share * w.z * 2 * lse / T * exp(static_cast<double>(z[e]) - lse);
      dlogits[t * g.experts + e] += static_cast<A>(gradient);
    }
  }
}

bool Fits(const BalanceShape& g) { return g.experts <= kRouterMaxExperts && g.top_k <= g.experts; }
unsigned Grid(const BalanceShape& g) { return static_cast<unsigned>(g.sequences * g.chunks()); }

}  // namespace

cudaError_t SumBalance(KernelType type, const BalanceShape& g, const void* scores, const void* logits,
                       const int64_t* previous, int64_t* load, double* sums, const BalanceScratch& scratch,
                       cudaStream_t stream) {
  if (!Fits(g)) return cudaErrorInvalidValue;
  if (g.sequences * g.tokens == 0) return cudaSuccess;
  const auto bytes = static_cast<size_t>(g.sequences * g.experts) * sizeof(int64_t);
  if (const cudaError_t result = cudaMemsetAsync(load, 0, bytes, stream); result != cudaSuccess)
    return result;
  const cudaError_t result = DispatchFloating(type, [&]<class A>() {
    return DispatchHeld(g.experts, [&]<int kHeld>() {
      CountKernel<A, kHeld><<<Grid(g), kThreads, 0, stream>>>(
          g, static_cast<const A*>(scores), static_cast<const A*>(sums != nullptr ? logits : nullptr), load,
          sums != nullptr ? scratch : BalanceScratch{nullptr, nullptr});
      return cudaGetLastError();
    });
  });
  if (result != cudaSuccess || sums == nullptr) return result;
  SumKernel<<<1, kSumThreads, 0, stream>>>(g, previous, load, scratch, sums);
  return cudaGetLastError();
}

cudaError_t BalanceBackward(KernelType type, const BalanceShape& g, const BalanceWeights& weights,
                            const void* scores, const void* logits, const int64_t* previous,
                            const int64_t* load, void* dlogits, cudaStream_t stream) {
  if (!Fits(g)) return cudaErrorInvalidValue;
  if (g.sequences * g.tokens == 0) return cudaSuccess;
  return DispatchFloating(type, [&]<class A>() {
    BackwardKernel<A><<<Grid(g), kThreads, 0, stream>>>(g, weights, static_cast<const A*>(scores),
                                                        static_cast<const A*>(logits), previous, load,
                                                        static_cast<A*>(dlogits));
    return cudaGetLastError();
  });
}

}  // namespace yardmaster
