#include "src/ops/cpu/scaled_gemm_cpu.h"

#include <algorithm>

#include "src/device/cpu_parallel.h"
#include "src/ops/cpu/blas.h"
#include "src/ops/cpu/ragged_blocks.h"
#include "src/tensor/small_float.h"

namespace yardmaster::cpu {
namespace {

constexpr int64_t kRun = 128;   // of the contraction, promoted at once
constexpr int64_t kTile = 128;  // columns of the result that share a call of BLAS, and a scale of a weight

// One tile of the result: d[i, j] = sum over runs of (a_run b_run^T)[i, j] * scale(run, i, j) + beta * c[i,
// j].
template <class Scale>
void PromotedTile(int64_t rows, int64_t columns, int64_t K, Mat<const float> a, Mat<const float> b,
                  float beta, Mat<const float> c, Mat<float> d, Scale&& scale) {
  float sum[kTile * kTile], partial[kTile * kTile];
  std::fill(sum, sum + rows * columns, 0.0f);
  for (int64_t k0 = 0; k0 < K; k0 += kRun) {
    BlasGemm<float>(false, true, rows, columns, std::min(kRun, K - k0), 1.0f, {a.data + k0, a.ld},
                    {b.data + k0, b.ld}, 0.0f, {partial, columns});
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j)
        sum[i * columns + j] += partial[i * columns + j] * scale(k0 / kRun, i, j);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const float old = beta == 0 ? 0 : beta * c.data[i * c.ld + j];
      d.data[i * d.ld + j] = sum[i * columns + j] + old;
    }
  }
}

}  // namespace

void DecodeE4m3(const Stream& stream, const Tensor& codes, const Tensor& values) {
  const auto* from = codes.as<uint8_t>();
  auto* to = values.as<float>();
  ParallelFor(stream, codes.elements(), GrainFor(codes.elements(), 4096), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = E4m3ToFloat(from[i]);
  });
}

void Fp8BlockGemm(const Stream& stream, const ScaledGemmArgs& g, const Tensor& x_values,
                  const Tensor& w_values) {
  const int64_t R = g.y.dim(0), N = g.y.dim(1), K = g.x.codes.dim(1);
  const int64_t tiles = (N + kTile - 1) / kTile, runs = (K + kRun - 1) / kRun;
  const RaggedGroups groups(g.offsets, R);
  const Tensor& c = g.c.defined() ? g.c : g.y;
  const auto* x_scales = g.x.scales.as<float>();
  const int64_t x_ld = g.x.scales.ld();
  ParallelFor(stream, groups.blocks() * tiles, 1, [&](int64_t task, int64_t) {
    const RaggedBlock block = groups.Block(task / tiles);
    const int64_t n0 = task % tiles * kTile;
    const float* w_scales = g.w.scales.as<float>() + (block.group * tiles + n0 / kTile) * runs;
    PromotedTile(block.rows, std::min(kTile, N - n0), K, {x_values.as<float>() + block.row0 * K, K},
                 {w_values.as<float>() + (block.group * N + n0) * K, K}, static_cast<float>(g.beta),
                 {c.as<float>() + block.row0 * c.ld() + n0, c.ld()},
                 {g.y.as<float>() + block.row0 * g.y.ld() + n0, g.y.ld()},
                 [&](int64_t run, int64_t i, int64_t) {
                   return x_scales[run * x_ld + block.row0 + i] * w_scales[run];
                 });
  });
}

void Fp8BlockGemmWeight(const Stream& stream, const ScaledGemmWeightArgs& g, const Tensor& dy_values,
                        const Tensor& x_values) {
  const int64_t L = g.dw.dim(0), N = g.dw.dim(1), K = g.dw.dim(2), padded = g.x.codes.dim(1);
  const int64_t row_tiles = (N + kTile - 1) / kTile, column_tiles = (K + kTile - 1) / kTile;
  const RaggedGroups groups(g.offsets, g.rows);
  const auto *dy_scales = g.dy.scales.as<float>(), *x_scales = g.x.scales.as<float>();
  const int64_t dy_ld = g.dy.scales.ld(), x_ld = g.x.scales.ld();
  ParallelFor(stream, L * row_tiles * column_tiles, 1, [&](int64_t task, int64_t) {
    const int64_t l = task / (row_tiles * column_tiles);
    const int64_t n0 = task / column_tiles % row_tiles * kTile, k0 = task % column_tiles * kTile;
    int64_t begin = 0;  // of the group in the aligned row space
    for (int64_t i = 0; i < l; ++i) begin += RaggedGroups::Aligned(groups.rows(i));
    const Mat<float> dw{g.dw.as<float>() + (l * N + n0) * K + k0, K};
    PromotedTile(std::min(kTile, N - n0), std::min(kTile, K - k0), RaggedGroups::Aligned(groups.rows(l)),
                 {dy_values.as<float>() + n0 * padded + begin, padded},
                 {x_values.as<float>() + k0 * padded + begin, padded}, static_cast<float>(g.beta),
                 {dw.data, dw.ld}, dw, [&](int64_t run, int64_t i, int64_t j) {
                   return dy_scales[(begin / kRun + run) * dy_ld + n0 + i] *
                          x_scales[(begin / kRun + run) * x_ld + k0 + j];
                 });
  });
}

}  // namespace yardmaster::cpu
