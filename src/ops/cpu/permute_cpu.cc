#include "src/ops/cpu/permute_cpu.h"

#include <algorithm>
#include <cstring>

#include "src/device/cpu_parallel.h"

namespace yardmaster::cpu {

void PermutePlan(const PermutePlanArgs& g, const Tensor& overflow, const Tensor& next_row) {
  const int64_t pairs = g.idx.elements(), L = g.offsets.dim(0) - 1, R = g.source.dim(0);
  const int32_t* idx = g.idx.as<int32_t>();
  int64_t* offsets = g.offsets.as<int64_t>();
  int64_t* slot = g.slot.as<int64_t>();
  int64_t* source = g.source.as<int64_t>();
  int64_t* next = next_row.as<int64_t>();
  const auto local = [&](int64_t pair) { return static_cast<int64_t>(idx[pair]) - g.expert_begin; };

  std::fill(next, next + L + 1, int64_t{0});
  for (int64_t p = 0; p < pairs; ++p) {
    const int64_t l = local(p);
    if (0 <= l && l < L) ++next[l];
  }
  int64_t row = 0;  // from counts to first rows
  for (int64_t l = 0; l < L; ++l) {
    const int64_t count = next[l];
    next[l] = row;
    offsets[l] = std::min(row, R);
    row += count;
  }
  offsets[L] = std::min(row, R);
  if (row > R) overflow.as<int32_t>()[0] = 1;

  for (int64_t p = 0; p < pairs; ++p) {
    const int64_t l = local(p);
    slot[p] = -1;
    if (l < 0 || l >= L) continue;
    const int64_t r = next[l]++;
    if (r >= R) continue;
    slot[p] = r;
    source[r] = p;
  }
}

void Permute(const Stream& stream, const PermuteArgs& g) {
  const int64_t n_T = g.x_TD.dim(0);
  const int64_t rows = g.offsets.as<int64_t>()[g.offsets.dim(0) - 1];
  YM_CHECK(0 <= rows && rows <= g.x_RD.dim(0), "Permute: ", rows, " rows of ", g.x_RD.dim(0));
  const int64_t* source = g.source.as<int64_t>();
  const size_t row_bytes = static_cast<size_t>(g.x_TD.dim(1) * DTypeBytes(g.x_TD.dtype()));
  const char* x = static_cast<const char*>(g.x_TD.data());
  char* out = static_cast<char*>(g.x_RD.data());
  ParallelFor(stream, rows, GrainFor(rows, 64), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t t = source[r] / g.top_k;
      YM_CHECK(0 <= t && t < n_T, "Permute: row ", r, " comes from pair ", source[r]);
      if (row_bytes)
        std::memcpy(out + static_cast<size_t>(r) * row_bytes,
                    x + static_cast<size_t>(t) * row_bytes, row_bytes);
    }
  });
  if (!g.w_TK.defined()) return;
  DispatchFloat(g.w_TK.dtype(), [&]<class T>() {
    const T* w = g.w_TK.as<T>();
    T* w_R = g.w_R.as<T>();
    for (int64_t r = 0; r < rows; ++r) w_R[r] = w[source[r]];
  });
}

void Unpermute(const Stream& stream, const UnpermuteArgs& g) {
  const int64_t n_T = g.y_TD.dim(0), D = g.y_TD.dim(1), K = g.slot.dim(1), R = g.y_RD.dim(0);
  const int64_t* slot = g.slot.as<int64_t>();
  DispatchFloat(g.y_TD.dtype(), [&]<class T>() {
    const T* rows = g.y_RD.as<T>();
    const T* residual = g.residual.defined() ? g.residual.as<T>() : nullptr;
    const T* addend = g.addend.defined() ? g.addend.as<T>() : nullptr;
    ParallelFor(stream, n_T, GrainFor(n_T, 16), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        // A block of columns at a time: y_TD may be residual or addend, so the sum is formed beside
        // it.
        constexpr int64_t kBlock = 64;
        T sum[kBlock];
        for (int64_t d0 = 0; d0 < D; d0 += kBlock) {
          const int64_t n = std::min(kBlock, D - d0), at = t * D + d0;
          if (residual != nullptr) {
            std::copy_n(residual + at, n, sum);
          } else {
            std::fill_n(sum, n, T{0});
          }
          if (addend != nullptr) {
            for (int64_t i = 0; i < n; ++i) sum[i] += addend[at + i];
          }
          for (int64_t k = 0; k < K; ++k) {
            const int64_t r = slot[t * K + k];
            if (r < 0) continue;
            YM_CHECK_LT(r, R, "Unpermute: slot of token ", t);
            const T* row = rows + r * D + d0;
            for (int64_t i = 0; i < n; ++i) sum[i] += row[i];
          }
          std::copy_n(sum, n, g.y_TD.as<T>() + at);
        }
      }
    });
  });
  if (!g.dw_R.defined()) return;
  DispatchFloat(g.dw_R.dtype(), [&]<class T>() {
    const T* dw = g.dw_R.as<T>();
    T* dw_TK = g.dw_TK.as<T>();
    for (int64_t p = 0; p < n_T * K; ++p) dw_TK[p] = slot[p] < 0 ? T{0} : dw[slot[p]];
  });
}

}  // namespace yardmaster::cpu
