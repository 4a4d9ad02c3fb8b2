#include "kernels/common/pack.cuh"
#include "kernels/segments/segments.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) CountKernel(SegmentPlan g) {
  int64_t* own = g.counts + g.me * (g.experts + 2);
  for (int64_t e = threadIdx.x; e < g.experts; e += kThreads)
    own[e] = g.send_offsets[e + 1] - g.send_offsets[e];
  if (threadIdx.x == 0) {
    own[g.experts] = g.tokens;
    own[g.experts + 1] = g.window;
    *g.needed = 0;
  }
}

__device__ void Raise(int64_t* to, int64_t value) {
  atomicMax(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}

// One block for each owner q. Thread t takes the t-th run of consecutive (expert, rank) pairs; the runs' sums
// are scanned by one thread, which is short work beside the exchange of the counts.
__global__ void __launch_bounds__(kThreads) WindowsKernel(SegmentPlan g) {
  __shared__ int64_t sums[kThreads + 1];
  const int64_t q = blockIdx.x, row = g.experts + 2, pairs = g.local_experts * g.ranks;
  const int64_t per_thread = (pairs + kThreads - 1) / kThreads, first = threadIdx.x * per_thread;
  const int64_t last = min(first + per_thread, pairs);
  const auto count = [&](int64_t j) {
    return g.counts[j % g.ranks * row + q * g.local_experts + j / g.ranks];
  };
  int64_t sum = 0;
  for (int64_t j = first; j < last; ++j) sum += count(j);
  sums[threadIdx.x + 1] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sums[0] = 0;
    for (int t = 0; t < kThreads; ++t) sums[t + 1] += sums[t];
  }
  __syncthreads();
  const int64_t window = g.counts[q * row + g.experts + 1], total = sums[kThreads];
  int64_t at = sums[threadIdx.x];
  for (int64_t j = first; j < last; ++j) {
    const int64_t l = j / g.ranks, p = j % g.ranks;
    g.begins[p * g.experts + q * g.local_experts + l] = at;
    if (q == g.me && p == 0) g.offsets[l] = min(at, window);
    at += count(j);
  }
  if (q == g.me && threadIdx.x == 0) g.offsets[g.local_experts] = min(total, window);
  int64_t most = threadIdx.x == 0 ? total : 0;
  bool over = threadIdx.x == 0 && total > window;
  for (int64_t p = threadIdx.x; p < g.ranks; p += kThreads) {
    int64_t rows = 0;
    for (int64_t l = 0; l < g.local_experts; ++l) {
      if (q == g.me) g.recv_first[p * g.local_experts + l] = rows;
      rows += g.counts[p * row + q * g.local_experts + l];
    }
    if (g.needs_segments) most = max(most, rows * g.ranks);
    over = over || (g.capacity > 0 && rows > g.capacity);
  }
  if (most > 0) Raise(g.needed, most);
  if (most > 0 && g.most_needed != nullptr) Raise(g.most_needed, most);
  if (over) *g.overflow = 1;
  if (q == g.me && threadIdx.x == 0) {
    int64_t begin = 0;
    for (int64_t p = 0; p < g.ranks; ++p) {
      g.recv_begin[p] = begin;
      for (int64_t l = 0; l < g.local_experts; ++l) begin += g.counts[p * row + q * g.local_experts + l];
    }
    g.recv_begin[g.ranks] = begin;
  }
}

// The last j in [0, n) with value(j) <= x; value(0) <= x.
template <class F>
__device__ __forceinline__ int64_t LastAtMost(int64_t n, int64_t x, F&& value) {
  int64_t low = 0, high = n;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (value(middle) <= x ? low : high) = middle;
  }
  return low;
}

__global__ void __launch_bounds__(kThreads) PlacesKernel(SegmentPlan g) {
  const int64_t step = int64_t{gridDim.x} * kThreads, thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t sent = g.send_offsets[g.experts], received = g.offsets[g.local_experts], row = g.experts + 2;
  for (int64_t i = thread; i < sent; i += step) {
    const int64_t e = LastAtMost(g.experts, i, [&](int64_t j) { return g.send_offsets[j]; });
    const int64_t q = e / g.local_experts, position = i - g.send_offsets[q * g.local_experts];
    const int64_t window_row = g.begins[g.me * g.experts + e] + i - g.send_offsets[e];
    const bool fits =
        window_row < g.counts[q * row + g.experts + 1] && (g.capacity == 0 || position < g.capacity);
    const int64_t place = !fits ? -1 : g.capacity == 0 ? i : q * g.capacity + position;
    g.send_place[i] = place;
    g.send_slot[g.send_source[i]] = place;
  }
  for (int64_t r = thread; r < received; r += step) {
    const int64_t base = g.me * g.local_experts;
    const int64_t j = LastAtMost(g.local_experts * g.ranks, r, [&](int64_t i) {
      return g.begins[i % g.ranks * g.experts + base + i / g.ranks];
    });
    const int64_t l = j / g.ranks, p = j % g.ranks;
    const int64_t position = g.recv_first[p * g.local_experts + l] + r - g.begins[p * g.experts + base + l];
    g.recv_place[r] = g.capacity == 0         ? g.recv_begin[p] + position
                      : position < g.capacity ? p * g.capacity + position
                                              : -1;
  }
}

template <class Unit>
__global__ void __launch_bounds__(kThreads) MoveKernel(MoveRowsArgs g, int64_t units) {
  const int64_t rows = min(*g.num_rows, g.most);
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    const int64_t from = g.from_index == nullptr ? i : g.from_index[i];
    const int64_t to = g.to_index == nullptr ? i : g.to_index[i];
    if (from < 0 || to < 0) continue;
    const Unit* source = static_cast<const Unit*>(g.from) + from / g.from_divisor * units;
    Unit* target = static_cast<Unit*>(g.to) + to * units;
    for (int64_t u = threadIdx.x; u < units; u += kThreads) target[u] = source[u];
    const int words = g.weight_bytes / 4;
    if (threadIdx.x < words) {
      static_cast<int*>(g.w_to)[to * words + threadIdx.x] =
          static_cast<const int*>(g.w_from)[from * words + threadIdx.x];
    }
  }
}

}  // namespace

cudaError_t CountSegments(const SegmentPlan& g, cudaStream_t stream) {
  CountKernel<<<1, kThreads, 0, stream>>>(g);
  return cudaGetLastError();
}

cudaError_t PlaceWindows(const SegmentPlan& g, cudaStream_t stream) {
  WindowsKernel<<<static_cast<unsigned>(g.ranks), kThreads, 0, stream>>>(g);
  return cudaGetLastError();
}

cudaError_t PlaceRows(const SegmentPlan& g, cudaStream_t stream) {
  const int64_t rows = g.tokens * g.top_k > g.window ? g.tokens * g.top_k : g.window;
  PlacesKernel<<<GridFor((rows + kThreads - 1) / kThreads), kThreads, 0, stream>>>(g);
  return cudaGetLastError();
}

cudaError_t MoveRows(const MoveRowsArgs& g, cudaStream_t stream) {
  if (g.most == 0 || (g.row_bytes == 0 && g.weight_bytes == 0)) return cudaSuccess;
  if (g.weight_bytes % 4 != 0 || g.from_divisor < 1) return cudaErrorInvalidValue;
  const auto launch = [&]<class Unit>() {
    MoveKernel<Unit><<<GridFor(g.most), kThreads, 0, stream>>>(g, g.row_bytes / int64_t{sizeof(Unit)});
    return cudaGetLastError();
  };
  if (PacksFit(16, {g.from, g.to}, {g.row_bytes})) return launch.template operator()<uint4>();
  if (g.row_bytes % 4 == 0) return launch.template operator()<uint32_t>();
  return launch.template operator()<uint8_t>();
}

}  // namespace yardmaster
