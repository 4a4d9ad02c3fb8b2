#include "kernels/common/counting_sort.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/permute/permute.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

// First rows of the experts, unclamped in place and clamped to R in offsets.
__global__ void __launch_bounds__(kThreads) OffsetsKernel(PermutePlanRows g) {
  __shared__ int64_t shared[kThreads / 32];
  const int64_t total = sort_internal::BlockScan<kThreads>(
      g.experts, shared, [&](int64_t l) { return g.starts[l]; },
      [&](int64_t l, int64_t first) {
        g.starts[l] = first;
        g.offsets[l] = first < g.rows ? first : g.rows;
      });
  if (threadIdx.x != 0) return;
  g.offsets[g.experts] = total < g.rows ? total : g.rows;
  if (total > g.rows) *g.overflow = 1;
}

struct WriteSlot {
  int64_t* slot;
  int64_t* source;
  int64_t rows;
  __device__ __forceinline__ void operator()(int64_t pair, int64_t row) const {
    const bool fits = row >= 0 && row < rows;
    slot[pair] = fits ? row : -1;
    if (fits) source[row] = pair;
  }
};

template <class Unit>
__global__ void __launch_bounds__(kThreads)
    GatherKernel(const Unit* x, int64_t units, const int64_t* source, const int64_t* num_rows, int64_t R,
                 int64_t top_k, Unit* out, const int* w, int weight_words, int* w_out) {
  const int64_t used = *num_rows, rows = used < R ? used : R;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const int64_t pair = source[r];
    const Unit* from = x + pair / top_k * units;
    Unit* to = out + r * units;
    for (int64_t i = threadIdx.x; i < units; i += kThreads) to[i] = from[i];
    if (w != nullptr && threadIdx.x < weight_words)
      w_out[r * weight_words + threadIdx.x] = w[pair * weight_words + threadIdx.x];
  }
}

constexpr int kHeld = 4;  // units of a thread on their way before the first is used

// Past L2's lines that are still wanted: what is written here is read again only later.
__device__ __forceinline__ void StoreStreaming(uint4* to, uint4 x) { __stcs(to, x); }
template <class Unit>
__device__ __forceinline__ void StoreStreaming(Unit* to, Unit x) {
  *to = x;
}

// Token by token: a row of x is read once and written to its slots. Row by row, as above, it comes from
// memory again for each of its experts, where x does not fit into L2.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    SpreadKernel(const Unit* x, int64_t units, const int64_t* slot, int64_t n_T, int64_t top_k, Unit* out,
                 const int* w, int weight_words, int* w_out) {
  for (int64_t t = blockIdx.x; t < n_T; t += gridDim.x) {
    const Unit* from = x + t * units;
    const int64_t* slots = slot + t * top_k;
    for (int64_t base = threadIdx.x; base < units; base += int64_t{kThreads} * kHeld) {
      Unit held[kHeld];
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
        if (base + p * kThreads < units) held[p] = from[base + p * kThreads];
      }
      for (int64_t k = 0; k < top_k; ++k) {
        const int64_t row = slots[k];
        if (row < 0) continue;
        Unit* to = out + row * units;
#pragma unroll
        for (int p = 0; p < kHeld; ++p) {
          if (base + p * kThreads < units) StoreStreaming(to + base + p * kThreads, held[p]);
        }
      }
    }
    if (w == nullptr) continue;
    for (int64_t k = threadIdx.x; k < top_k; k += kThreads) {
      if (slots[k] < 0) continue;
      for (int i = 0; i < weight_words; ++i)
        w_out[slots[k] * weight_words + i] = w[(t * top_k + k) * weight_words + i];
    }
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    GatherSumKernel(const T* y_RD, const int64_t* slot, int64_t n_T, int64_t K, int64_t D, const T* residual,
                    const T* addend, T* y, const Accum<T>* dw_R, Accum<T>* dw_TK) {
  using A = Accum<T>;
  for (int64_t t = blockIdx.x; t < n_T; t += gridDim.x) {
    const int64_t* slots = slot + t * K;
    for (int64_t d = int64_t{threadIdx.x} * kWidth; d < D; d += int64_t{kThreads} * kWidth) {
      A sum[kWidth] = {}, x[kWidth];
      const auto add = [&](const T* from) {
        LoadAccum<kWidth>(from, x);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sum[j] += x[j];
      };
      if (residual != nullptr) add(residual + t * D + d);
      if (addend != nullptr) add(addend + t * D + d);
#pragma unroll 4
      for (int64_t k = 0; k < K; ++k) {
        if (slots[k] >= 0) add(y_RD + slots[k] * D + d);
      }
      StoreRounded<kWidth>(y + t * D + d, sum);
    }
    if (dw_R == nullptr) continue;
    for (int64_t k = threadIdx.x; k < K; k += kThreads)
      dw_TK[t * K + k] = slots[k] < 0 ? A{0} : dw_R[slots[k]];
  }
}

}  // namespace

cudaError_t PlanPermute(const PermutePlanRows& g, cudaStream_t stream) {
  if (g.experts == 0) {  // no expert is local: no rows
    cudaError_t result = cudaMemsetAsync(g.offsets, 0, sizeof(int64_t), stream);
    if (result == cudaSuccess && g.pairs > 0)
      result = cudaMemsetAsync(g.slot, 0xFF, static_cast<size_t>(g.pairs) * sizeof(int64_t), stream);
    return result;
  }
  const SortKeys keys{.keys = g.idx,
                      .order = nullptr,
                      .n = g.pairs,
                      .first = g.expert_begin,
                      .shift = 0,
                      .mask = -1,
                      .bins = g.experts,
                      .chunk = g.chunk};
  const cudaError_t result = CountByBin(keys, g.prefix, g.starts, stream);
  if (result != cudaSuccess) return result;
  OffsetsKernel<<<1, kThreads, 0, stream>>>(g);
  return ScatterByBin(keys, g.prefix, g.starts, WriteSlot{g.slot, g.source, g.rows}, stream);
}

cudaError_t PermuteRows(const PermuteRowsArgs& g, cudaStream_t stream) {
  if (g.rows == 0 || (g.row_bytes == 0 && g.w == nullptr)) return cudaSuccess;
  if (g.weight_bytes % 4 != 0 || g.top_k < 1) return cudaErrorInvalidValue;
  const auto launch = [&]<class Unit>() {
    const auto* x = static_cast<const Unit*>(g.x);
    const auto* w = static_cast<const int*>(g.w);
    const int64_t units = g.row_bytes / int64_t{sizeof(Unit)};
    auto* out = static_cast<Unit*>(g.out);
    auto* w_out = static_cast<int*>(g.w_out);
    if (g.slot != nullptr) {
      SpreadKernel<Unit><<<GridFor(g.tokens, int64_t{1} << 30), kThreads, 0, stream>>>(
          x, units, g.slot, g.tokens, g.top_k, out, w, g.weight_bytes / 4, w_out);
    } else {
      GatherKernel<Unit><<<GridFor(g.rows), kThreads, 0, stream>>>(
          x, units, g.source, g.num_rows, g.rows, g.top_k, out, w, g.weight_bytes / 4, w_out);
    }
    return cudaGetLastError();
  };
  if (PacksFit(16, {g.x, g.out}, {g.row_bytes})) return launch.template operator()<uint4>();
  if (g.row_bytes % 4 == 0) return launch.template operator()<uint32_t>();
  return launch.template operator()<uint8_t>();
}

cudaError_t UnpermuteRows(KernelType type, const void* y_RD, const int64_t* slot, int64_t T_, int64_t K,
                          int64_t D, const void* residual, const void* addend, void* y_TD, const void* dw_R,
                          void* dw_TK, cudaStream_t stream) {
  if (T_ == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    return DispatchWidth<T>(PacksFit(kPackWidth<T>, {y_RD, residual, addend, y_TD}, {D}), [&]<int kWidth>() {
      GatherSumKernel<T, kWidth><<<GridFor(T_, int64_t{1} << 30), kThreads, 0, stream>>>(
          static_cast<const T*>(y_RD), slot, T_, K, D, static_cast<const T*>(residual),
          static_cast<const T*>(addend), static_cast<T*>(y_TD), static_cast<const Accum<T>*>(dw_R),
          static_cast<Accum<T>*>(dw_TK));
      return cudaGetLastError();
    });
  });
}

}  // namespace yardmaster
