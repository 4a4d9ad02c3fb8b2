#include "kernels/common/block_reduce.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/router/experts_of_warp.cuh"
#include "kernels/router/router.h"

namespace yardmaster {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr double kNormEpsilon = 1e-20;  // of DeepSeek-V3's gate

// The scores of a token from its logits, over the warp's registers.
template <int kHeld, class A>
__device__ __forceinline__ void Score(const RouterShape& g, A (&score)[kHeld]) {
  switch (g.scoring) {
    case RouterScoring::kSigmoid:
#pragma unroll
      for (int j = 0; j < kHeld; ++j) score[j] = A{1} / (A{1} + exp(-score[j]));
      return;
    case RouterScoring::kSoftmax: {
      A largest = score[0], sum = 0;
#pragma unroll
      for (int j = 1; j < kHeld; ++j) largest = max(largest, score[j]);
      largest = WarpReduce(largest, MaxOp());
#pragma unroll
      for (int j = 0; j < kHeld; ++j)
        sum += score[j] = exp(score[j] - largest);  // beyond the experts: exp(-inf)
      sum = WarpReduce(sum, SumOp());
#pragma unroll
      for (int j = 0; j < kHeld; ++j) score[j] /= sum;
      return;
    }
  }
}

// The sum of the two largest choice scores of experts [begin, end), or the largest alone; every lane gets it.
template <int kHeld, class A>
__device__ __forceinline__ A GroupScore(const A (&choice)[kHeld], int begin, int end,
                                        RouterGrouping grouping) {
  A first = -INFINITY, second = -INFINITY;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int e = j * 32 + Lane();
    if (e < begin || e >= end) continue;
    const A c = choice[j];
    second = max(second, min(first, c));
    first = max(first, c);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    const A other_first = __shfl_xor_sync(0xffffffffu, first, offset),
            other_second = __shfl_xor_sync(0xffffffffu, second, offset);
    second = max(min(first, other_first), max(second, other_second));
    first = max(first, other_first);
  }
  return end - begin == 1 || grouping == RouterGrouping::kMax ? first : first + second;
}

// Bits of the groups that stay.
template <int kHeld, class A>
__device__ __forceinline__ unsigned ChooseGroups(const RouterShape& g, const A (&choice)[kHeld]) {
  const int size = g.experts / g.groups;
  A mine = -INFINITY;  // lane i holds group i
  for (int i = 0; i < g.groups; ++i) {
    const A score = GroupScore(choice, i * size, (i + 1) * size, g.grouping);
    if (Lane() == i) mine = score == score ? score : -INFINITY;
  }
  unsigned chosen = 0;
  for (int i = 0; i < g.topk_groups; ++i) {
    const bool open = Lane() < g.groups && (chosen >> Lane() & 1) == 0;
    chosen |= 1u << WarpLargest(open ? mine : static_cast<A>(-INFINITY), open ? Lane() : 32 + Lane());
  }
  return chosen;
}

// Bit j of the result: this lane's expert j * 32 + lane is one of the K.
template <int kHeld, class A>
__device__ __forceinline__ unsigned ChooseExperts(const RouterShape& g, A (&choice)[kHeld]) {
  unsigned open = 0;  // experts that can still be chosen
  const bool limited = g.topk_groups < g.groups;
  const unsigned groups = limited ? ChooseGroups(g, choice) : 0;
  const int size = g.experts / g.groups;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int e = j * 32 + Lane();
    if (e < g.experts && (!limited || (groups >> (e / size) & 1) != 0)) open |= 1u << j;
  }
  return ChooseLargest(choice, open, g.top_k);
}

// Bits of this lane's experts among those that token t takes by its number alone.
__device__ __forceinline__ unsigned ForcedExperts(const RouterShape& g, int64_t t) {
  const int64_t E = g.experts, K = g.top_k;
  int64_t first = 0, before = t * K;  // choices of the earlier tokens among the others
  if (g.force == RouterForce::kSkewed) {
    // Expert 0 takes floor((t + 1) p) - floor(t p) of token t's K choices, p = skew K / E <= 1; the others in
    // turn.
    const double p = g.force_skew * static_cast<double>(K) / static_cast<double>(E);
    const auto taken = [p](int64_t tokens) {
      return static_cast<int64_t>(floor(__dadd_rn(__dmul_rn(p, static_cast<double>(tokens)), 1e-9)));
    };
    first = taken(t + 1) - taken(t);
    before -= taken(t);
  }
  unsigned chosen = first > 0 && Lane() == 0 ? 1u : 0u;
  for (int64_t i = first; i < K; ++i) {
    const int64_t e = g.force == RouterForce::kSkewed ? 1 + (before + i - first) % (E - 1) : (before + i) % E;
    if (e % 32 == Lane()) chosen |= 1u << (e / 32);
  }
  return chosen;
}

template <class A, int kHeld>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(RouterShape g, const A* logits, const A* bias, const int32_t* forced_idx, A* scores,
                  int32_t* idx, A* w, int64_t* counts) {
  __shared__ int load[kHeld * 32];
  if (counts != nullptr) {
    for (int e = static_cast<int>(threadIdx.x); e < kHeld * 32; e += kThreads) load[e] = 0;
    __syncthreads();
  }
  for (int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; t < g.tokens;
       t += int64_t{gridDim.x} * kWarps) {
    A score[kHeld], choice[kHeld];
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int e = j * 32 + Lane();
      score[j] = e < g.experts ? logits[t * g.experts + e] : static_cast<A>(-INFINITY);
    }
    Score(g, score);
    unsigned chosen = 0;
    if (forced_idx != nullptr) {
      int before = -1;
      for (int k = 0; k < g.top_k; ++k) {
        const int e = forced_idx[t * g.top_k + k];
        if (e > before && e < g.experts && e % 32 == Lane()) chosen |= 1u << (e / 32);
        before = e > before ? e : before;
      }
    } else if (g.force != RouterForce::kNone) {
      chosen = ForcedExperts(g, t);
    } else {
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        const int e = j * 32 + Lane();
        const A c = bias != nullptr && e < g.experts ? score[j] + bias[e] : score[j];
        choice[j] = c == c ? c : static_cast<A>(-INFINITY);
      }
      chosen = ChooseExperts(g, choice);
    }
    A sum = 0;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      if ((chosen >> j & 1) != 0) sum += score[j];
    }
    sum = WarpReduce(sum, SumOp());
    const A norm = g.normalise ? sum + static_cast<A>(kNormEpsilon) : A{1},
            scaling = static_cast<A>(g.scaling);
    int written = 0;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int e = j * 32 + Lane();
      if (e < g.experts) scores[t * g.experts + e] = score[j];
      const bool mine = (chosen >> j & 1) != 0;
      const unsigned all = __ballot_sync(0xffffffffu, mine);
      if (mine) {
        const int64_t at = t * g.top_k + written + __popc(all & ((1u << Lane()) - 1));
        idx[at] = e;
        w[at] = score[j] / norm * scaling;
        if (counts != nullptr) atomicAdd(&load[e], 1);
      }
      written += __popc(all);
    }
    for (int k = written + Lane(); k < g.top_k; k += 32)
      idx[t * g.top_k + k] = 0, w[t * g.top_k + k] = static_cast<A>(NAN);
  }
  if (counts == nullptr) return;
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < g.experts; e += kThreads) {
    if (load[e] != 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(counts + e), static_cast<unsigned long long>(load[e]));
  }
}

template <class A>
__global__ void __launch_bounds__(kThreads)
    BackwardKernel(RouterShape g, const A* dw, const A* scores, const int32_t* idx, A* dlogits) {
  const A c = static_cast<A>(g.scaling);
  for (int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; t < g.tokens;
       t += int64_t{gridDim.x} * kWarps) {
    A* row = dlogits + t * g.experts;
    A n = 0, weighted = 0;
    for (int k = Lane(); k < g.top_k; k += 32) {
      const A s = scores[t * g.experts + idx[t * g.top_k + k]];
      n += s;
      weighted += dw[t * g.top_k + k] * s;
    }
    n = WarpReduce(n, SumOp()) + static_cast<A>(kNormEpsilon);
    weighted = WarpReduce(weighted, SumOp());
    const auto ds_of = [&](A d) { return g.normalise ? c / n * (d - weighted / n) : c * d; };
    A along = 0;  // softmax: the sum of ds_j s_j
    if (g.scoring == RouterScoring::kSoftmax) {
      for (int k = Lane(); k < g.top_k; k += 32)
        along += ds_of(dw[t * g.top_k + k]) * scores[t * g.experts + idx[t * g.top_k + k]];
      along = WarpReduce(along, SumOp());
      for (int e = Lane(); e < g.experts; e += 32) row[e] = -along * scores[t * g.experts + e];
    } else {
      for (int e = Lane(); e < g.experts; e += 32) row[e] = 0;
    }
    __syncwarp();  // these are written before what replaces them
    for (int k = Lane(); k < g.top_k; k += 32) {
      const int e = idx[t * g.top_k + k];
      const A s = scores[t * g.experts + e], ds = ds_of(dw[t * g.top_k + k]);
      row[e] = g.scoring == RouterScoring::kSoftmax ? s * (ds - along) : ds * s * (A{1} - s);
    }
  }
}

// Blocks that each take several tokens, so that loads are added to counts rarely.
unsigned Grid(int64_t tokens) { return GridFor((tokens + kWarps - 1) / kWarps, 132 * 8); }

}  // namespace

cudaError_t RouteTokens(KernelType type, const RouterShape& g, const void* logits, const void* bias,
                        const int32_t* forced_idx, void* scores, int32_t* idx, void* w, int64_t* counts,
                        cudaStream_t stream) {
  if (g.experts > kRouterMaxExperts || g.groups > kRouterMaxGroups) return cudaErrorInvalidValue;
  if (g.tokens == 0) return cudaSuccess;
  return DispatchFloating(type, [&]<class A>() {
    return DispatchHeld(g.experts, [&]<int kHeld>() {
      ForwardKernel<A, kHeld><<<Grid(g.tokens), kThreads, 0, stream>>>(
          g, static_cast<const A*>(logits), static_cast<const A*>(bias), forced_idx, static_cast<A*>(scores),
          idx, static_cast<A*>(w), counts);
      return cudaGetLastError();
    });
  });
}

cudaError_t RouteTokensBackward(KernelType type, const RouterShape& g, const void* dw, const void* scores,
                                const int32_t* idx, void* dlogits, cudaStream_t stream) {
  if (g.tokens == 0) return cudaSuccess;
  return DispatchFloating(type, [&]<class A>() {
    BackwardKernel<A><<<Grid(g.tokens), kThreads, 0, stream>>>(
        g, static_cast<const A*>(dw), static_cast<const A*>(scores), idx, static_cast<A*>(dlogits));
    return cudaGetLastError();
  });
}

}  // namespace yardmaster
