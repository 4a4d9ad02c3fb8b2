#include "kernels/common/counting_sort.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/ep/meet.cuh"
#include "kernels/ep/plan.h"

namespace yardmaster {
namespace {

using namespace ep;

constexpr int kThreads = 256;
constexpr int kCountThreads = 1024;

__global__ void __launch_bounds__(kCountThreads) CountsKernel(const __grid_constant__ EpGroup g, EpCountsArgs a) {
  __shared__ int64_t scan[kCountThreads / 32];
  __shared__ int64_t window_start[kEpMaxRanks + 1];  // in the rows of all windows, one after the other
  const int n = g.size;
  const int64_t E = a.E, L = E / n, row = E + 2;
  const int64_t head = HeadWord(EpOp::kCounts, 0, 0);
  // For what runs after a failure: no rows, in a step that changes nothing.
  const auto no_rows = [&] {
    for (int64_t l = threadIdx.x; l <= L; l += kCountThreads) a.offsets[l] = 0;
    if (threadIdx.x == 0) {
      *a.needed = 0;
      *a.overflow = 1;
    }
  };
  const uint64_t epoch = Begin(g);
  if (epoch == 0) {
    no_rows();
    return;
  }
  Post(g, epoch, static_cast<int>(kEpHeadWords + row), [&](int, int w) -> int64_t {
    if (w == 0) return head;
    if (w < kEpHeadWords) return 0;
    const int64_t e = w - kEpHeadWords;
    return e < E ? a.expert_starts[e + 1] - a.expert_starts[e] : e == E ? a.T : a.R;
  });
  if (!AwaitReady(g, epoch, EpOp::kCounts, head)) {
    no_rows();
    EndEpoch(g, epoch);
    return;
  }
  bool wrong = false;
  for (int64_t i = threadIdx.x; i < n * row; i += kCountThreads) {
    const int p = static_cast<int>(i / row), w = static_cast<int>(i % row);
    const int64_t count = Word(g, epoch, p, kEpHeadWords + w);
    a.counts[i] = count;
    if (count < 0) {
      Fail(g, EpFault::kCounts, EpOp::kCounts, p, 0, count);
      wrong = true;
    }
  }
  wrong = __syncthreads_or(wrong);
  // Rows of all windows in order: by owner, its experts, source rank.
  const int64_t total = sort_internal::BlockScan<kCountThreads>(
      n * E, scan, [&](int64_t i) { return a.counts[i % n * row + i / n]; },
      [&](int64_t i, int64_t first) {
        const int64_t e = i / n, p = i % n;
        a.begins[p * E + e] = first;
        if (p == 0 && e % L == 0) window_start[e / L] = first;
      });
  if (threadIdx.x == 0) window_start[n] = total;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n * E; i += kCountThreads) a.begins[i] -= window_start[i % E / L];
  __syncthreads();
  const int64_t R = a.R;
  for (int64_t l = threadIdx.x; l <= L; l += kCountThreads) {
    const int64_t first =
        l < L ? a.begins[g.rank * L + l] : window_start[g.rank + 1] - window_start[g.rank];
    a.offsets[l] = first < R ? first : R;
  }
  if (threadIdx.x == 0) {
    int64_t needed = 0, pairs = 0;
    bool over = false;
    for (int q = 0; q < n; ++q) {
      const int64_t rows = window_start[q + 1] - window_start[q];
      needed = rows > needed ? rows : needed;
      over = over || rows > a.counts[q * row + E + 1];
      pairs += a.counts[q * row + E] * a.K;
    }
    if (total > pairs && !wrong) Fail(g, EpFault::kCounts, EpOp::kCounts, g.rank, pairs, total);
    *a.needed = needed;
    if (a.rows_needed != nullptr && *a.rows_needed < needed) *a.rows_needed = needed;
    if (over) *a.overflow = 1;
  }
  EndEpoch(g, epoch);
}

// The row of a pair in its owner's window, -1: not computed, or beyond the window.
__device__ __forceinline__ int64_t WindowRow(const EpGroup& g, const EpPairs& a, int64_t e, int64_t slot) {
  if (slot < 0) return -1;
  const int64_t row = a.begins[g.rank * a.E + e] + slot - a.expert_starts[e];
  const int64_t owner = e / (a.E / g.size);
  return row < a.counts[owner * (a.E + 2) + a.E + 1] ? row : -1;
}

__global__ void __launch_bounds__(kThreads) ClampKernel(const __grid_constant__ EpGroup g, EpPairs a, int64_t* slot) {
  const bool failed = Failed(g);
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.T * a.K; i += int64_t{gridDim.x} * kThreads) {
    if (failed || (slot[i] >= 0 && WindowRow(g, a, a.idx[i], slot[i]) < 0)) slot[i] = -1;
  }
}

__global__ void __launch_bounds__(kThreads)
    TokenRanksKernel(const __grid_constant__ EpGroup g, EpPairs a, const int64_t* slot, int64_t J, int64_t* rows, int32_t* ranks) {
  const bool failed = Failed(g);
  const int64_t L = a.E / g.size;
  for (int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x; t < a.T; t += int64_t{gridDim.x} * kThreads) {
    int64_t j = 0, last = -1;
    for (int64_t k = 0; k < a.K; ++k) {
      const int64_t pair = t * a.K + k, e = a.idx[pair];
      const int64_t row = failed ? -1 : WindowRow(g, a, e, slot[pair]);
      rows[pair] = row;
      if (row < 0 || e / L == last) continue;
      last = e / L;
      ranks[t * J + j++] = static_cast<int32_t>(last);
    }
    while (j < J) ranks[t * J + j++] = -1;
  }
}

__global__ void __launch_bounds__(kThreads) PlacesKernel(const __grid_constant__ EpGroup g, const __grid_constant__ EpPlacesArgs a) {
  __shared__ int64_t* to[kEpMaxRanks];  // recv_slot of the peer, from this rank's first token on
  const int n = g.size;
  const auto no_tokens = [&] {
    if (blockIdx.x != 0) return;
    for (int p = static_cast<int>(threadIdx.x); p <= n; p += kThreads) a.recv_offsets[p] = 0;
  };
  const uint64_t epoch = Begin(g);
  if (epoch == 0) {
    no_tokens();
    return;
  }
  const int64_t L = a.E / n, head = HeadWord(EpOp::kPlaces, a.region.id, 0);
  if (blockIdx.x == 0) {
    Post(g, epoch, kEpHeadWords + n, [&](int, int w) -> int64_t {
      if (w == 0) return head;
      if (w == 1) return a.place;
      if (w < kEpHeadWords) return a.N;
      const int q = w - kEpHeadWords;
      return a.send_offsets[q + 1] - a.send_offsets[q];
    });
  }
  const bool ready = AwaitReady(g, epoch, EpOp::kPlaces, head);
  if (!ready) no_tokens();
  if (ready) {
    const auto tokens = [&](int p, int q) { return Word(g, epoch, p, kEpHeadWords + q); };
    bool wrong = false;
    for (int q = static_cast<int>(threadIdx.x); q < n; q += kThreads) {
      int64_t first = 0, all = 0;
      for (int p = 0; p < n; ++p) {
        first += p < g.rank ? tokens(p, q) : 0;
        all += tokens(p, q);
      }
      const int64_t N = Word(g, epoch, q, 2);
      if (all > N) {
        Fail(g, EpFault::kCounts, EpOp::kPlaces, q, N, all);
        wrong = true;
      }
      to[q] = reinterpret_cast<int64_t*>(a.region.base[q] + Word(g, epoch, q, 1)) + (first - a.send_offsets[q]) * a.K;
    }
    wrong = __syncthreads_or(wrong);
    if (blockIdx.x == 0) {
      for (int i = static_cast<int>(threadIdx.x); i < n * n; i += kThreads) a.tokens[i] = tokens(i / n, i % n);
      if (threadIdx.x == 0) {
        int64_t sum = 0;
        for (int p = 0; p < n; ++p) {
          a.recv_offsets[p] = sum;
          sum += tokens(p, g.rank);
        }
        a.recv_offsets[n] = sum;
      }
    }
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; !wrong && i < a.T * a.J;
         i += int64_t{gridDim.x} * kThreads) {
      const int64_t slot = a.send_slot[i], t = i / a.J;
      if (slot < 0) continue;
      int q = 0;
      while (a.send_offsets[q + 1] <= slot) ++q;
      for (int64_t k = 0; k < a.K; ++k) {
        const int64_t pair = t * a.K + k;
        to[q][slot * a.K + k] = a.rows[pair] >= 0 && a.idx[pair] / L == q ? a.rows[pair] : -1;
      }
    }
  }
  if (LastBlock(g)) Finish(g, epoch, EpOp::kPlaces);
}

constexpr int kValues = 64;  // of a launch, whose arguments take room in the driver's queue
struct Values {
  int64_t v[kValues];
};
__global__ void __launch_bounds__(kValues) StoreKernel(const __grid_constant__ Values values, int count, int64_t* to) {
  if (static_cast<int>(threadIdx.x) < count) to[threadIdx.x] = values.v[threadIdx.x];
}

}  // namespace

cudaError_t EpStoreValues(const int64_t* values, int64_t count, int64_t* to, cudaStream_t stream) {
  for (int64_t at = 0; at < count; at += kValues) {
    Values part{};
    const int64_t here = count - at < kValues ? count - at : kValues;
    for (int64_t i = 0; i < here; ++i) part.v[i] = values[at + i];
    StoreKernel<<<1, kValues, 0, stream>>>(part, static_cast<int>(here), to + at);
  }
  return cudaGetLastError();
}

cudaError_t EpExchangeCounts(const EpGroup& group, const EpCountsArgs& args, cudaStream_t stream) {
  if (args.E % group.size != 0 || group.words < EpMessageWords(group.size, args.E)) return cudaErrorInvalidValue;
  CountsKernel<<<1, kCountThreads, 0, stream>>>(group, args);
  return cudaGetLastError();
}

cudaError_t EpClampSlots(const EpGroup& group, const EpPairs& pairs, int64_t* slot, cudaStream_t stream) {
  if (pairs.T == 0) return cudaSuccess;
  ClampKernel<<<GridFor((pairs.T * pairs.K + kThreads - 1) / kThreads), kThreads, 0, stream>>>(group, pairs, slot);
  return cudaGetLastError();
}

cudaError_t EpTokenRanks(const EpGroup& group, const EpPairs& pairs, const int64_t* slot, int64_t J, int64_t* rows,
                         int32_t* ranks, cudaStream_t stream) {
  if (pairs.T == 0) return cudaSuccess;
  TokenRanksKernel<<<GridFor((pairs.T + kThreads - 1) / kThreads), kThreads, 0, stream>>>(group, pairs, slot, J, rows, ranks);
  return cudaGetLastError();
}

cudaError_t EpExchangePlaces(const EpGroup& group, const EpPlacesArgs& args, int blocks, cudaStream_t stream) {
  if (blocks < 1 || group.words < EpMessageWords(group.size, args.E)) return cudaErrorInvalidValue;
  PlacesKernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(group, args);
  return cudaGetLastError();
}

cudaError_t LoadEpPlanKernels() {
  cudaFuncAttributes attributes;
  for (const void* kernel : {reinterpret_cast<const void*>(CountsKernel), reinterpret_cast<const void*>(ClampKernel),
                             reinterpret_cast<const void*>(TokenRanksKernel), reinterpret_cast<const void*>(PlacesKernel),
                             reinterpret_cast<const void*>(StoreKernel)}) {
    const cudaError_t result = cudaFuncGetAttributes(&attributes, kernel);
    if (result != cudaSuccess) return result;
  }
  return cudaSuccess;
}

}  // namespace yardmaster
