// What cuBLASLt is told of a grouped product of MXFP8 operands, without a GPU: its documented rules
// (alignment, tiles of scales, column-major matrices) are followed here on the cpu, from the same addresses
// and sizes, and give the products of the cpu device.
#include "kernels/grouped_gemm/mxfp8_groups.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "src/ops/quantize.h"
#include "src/ops/scaled_gemm.h"
#include "src/tensor/small_float.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

constexpr QuantFormat kMx{QuantKind::kMxfp8};

bool Aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// The scale of column `outer` of a matrix whose contraction has `length` elements, for element k: "1D Block
// Scaling Factors Layout" of NVIDIA's cuBLAS documentation.
double Scale(const uint8_t* tiles, int64_t outer, int64_t k, int64_t length) {
  const int64_t inner = k / 32, in_a_row = (length + 127) / 128 * 4;
  const uint8_t* tile = tiles + (inner / 4 * 4 + outer / 128 * in_a_row) * 128;
  return E8m0ToFloat(tile[outer % 32 * 16 + outer % 128 / 32 * 4 + inner % 4]);
}

// D = op_T(A) B + beta C, D in BF16 or F32.
template <class T>
void Multiply(const Mxfp8Group& g, double beta) {
  CHECK((g.a_rows == g.b_rows && g.a_columns == g.d_rows && g.b_columns == g.d_columns));
  CHECK((Aligned(g.a) && Aligned(g.b) && Aligned(g.a_scales) && Aligned(g.b_scales) && Aligned(g.c) &&
         Aligned(g.d)));
  CHECK((g.a_ld % 16 == 0 && g.b_ld % 16 == 0 && g.a_rows % 32 == 0));
  CHECK((g.d_ld * static_cast<int64_t>(sizeof(T)) % 16 == 0 &&
         g.d_rows * static_cast<int64_t>(sizeof(T)) % 16 == 0));
  CHECK((g.a_ld >= g.a_rows && g.b_ld >= g.b_rows && g.d_ld >= g.d_rows && g.c_ld >= g.d_rows));
  const auto* const c = static_cast<const T*>(g.c);
  auto* const d = static_cast<T*>(g.d);
  for (int64_t j = 0; j < g.d_columns; ++j) {
    for (int64_t i = 0; i < g.d_rows; ++i) {
      double sum = beta == 0 ? 0 : beta * static_cast<double>(static_cast<float>(c[i + j * g.c_ld]));
      for (int64_t k = 0; k < g.a_rows; ++k) {
        sum += E4m3ToFloat(g.a[k + i * g.a_ld]) * Scale(g.a_scales, i, k, g.a_rows) *
               (E4m3ToFloat(g.b[k + j * g.b_ld]) * Scale(g.b_scales, j, k, g.b_rows));
      }
      d[i + j * g.d_ld] = T(static_cast<float>(sum));
    }
  }
}

Quantized Copies(CpuFixture& cpu, const Shape& codes) {
  const Quantized q{cpu.Make(DType::kU8, codes), cpu.Make(DType::kU8, ScalesOf(kMx, codes))};
  std::memset(q.codes.data(), 0x7F, static_cast<size_t>(q.codes.bytes()));  // NaN, where nothing is written
  std::memset(q.scales.data(), 0xFF, static_cast<size_t>(q.scales.bytes()));
  return q;
}

Tensor Tiles(CpuFixture& cpu, const Shape& shape) {
  const Tensor t = cpu.Make(DType::kU8, shape);
  std::memset(t.data(), 0xFF, static_cast<size_t>(t.bytes()));
  return t;
}

Mxfp8Matrix Matrix(const Quantized& q, const Tensor& tiles) {
  return {q.codes.as<uint8_t>(), tiles.as<uint8_t>()};
}

struct Case {
  std::vector<int64_t> counts;  // empty: one group, without offsets
  int64_t rows, N, K;
};

std::vector<Mxfp8Range> Ranges(const Case& t) {
  std::vector<Mxfp8Range> ranges;
  Mxfp8Range at;
  for (const int64_t rows : t.counts.empty() ? std::vector<int64_t>{t.rows} : t.counts) {
    at.rows = rows;
    ranges.push_back(at);
    at = {at.index + 1, at.begin + rows, 0, at.first_block + (rows + 127) / 128};
  }
  return ranges;
}

void Check(const Case& t) {
  CpuFixture cpu;
  const std::vector<Mxfp8Range> ranges = Ranges(t);
  const auto L = static_cast<int64_t>(ranges.size());
  const int64_t R = t.rows, N = t.N, K = t.K, P = PaddedRows(R, L),
                used = ranges.back().begin + ranges.back().rows;
  INFO(L << " groups, " << R << " rows, " << N << " x " << K);
  std::vector<double> offsets = {0};
  for (const int64_t n : t.counts) offsets.push_back(offsets.back() + static_cast<double>(n));
  const Tensor off = t.counts.empty() ? Tensor() : cpu.Make(DType::kI64, {L + 1}, offsets);
  const auto source = [&](const char* name, const Shape& shape) {
    std::vector<double> values = RandomValues(name, shape.elements());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] *= std::exp2(static_cast<double>(i / 32 % 11) - 5);  // scales that differ
    return cpu.Make(DType::kF32, shape, values);
  };
  const Tensor x = source("x", {R, K}), dy = source("dy", {R, N}), w = source("w", {L, N, K});
  const Quantized x_rows = Copies(cpu, {R, K}), x_cols = Copies(cpu, {K, P}), dy_rows = Copies(cpu, {R, N}),
                  dy_cols = Copies(cpu, {N, P});
  const Quantized w_rows = Copies(cpu, {L, N, K}), w_cols = Copies(cpu, {L, K, N});
  QuantizeRows(cpu.stream(), {.format = kMx, .x = x, .offsets = off, .rows = x_rows, .cols = x_cols});
  QuantizeRows(cpu.stream(), {.format = kMx, .x = dy, .offsets = off, .rows = dy_rows, .cols = dy_cols});
  QuantizeWeights(cpu.stream(), {.format = kMx, .w = w, .rows = w_rows, .cols = w_cols});

  // Forward and input gradient; the latter's rows wider than the matrix and, without groups, added to another
  // one.
  const auto rows = [&](const Quantized& in, const Quantized& weight, int64_t n, int64_t k, int64_t extra,
                        double beta) {
    const Tensor in_tiles = Tiles(cpu, TileScaleShape(R, L, k / 32)),
                 w_tiles = Tiles(cpu, TileWeightScaleShape(L, n, k / 32));
    ScalesToTiles(cpu.stream(), in.scales, R, off, in_tiles);
    WeightScalesToTiles(cpu.stream(), weight.scales, w_tiles);
    const Tensor addend = cpu.Make(DType::kF32, {R, n}, RandomValues("c", R * n));
    const Tensor expected =
        cpu.Make(DType::kF32, {R, n}, std::vector<double>(static_cast<size_t>(R * n), -3));
    if (off.defined()) {
      ScaledGemm(cpu.stream(), {.format = kMx, .x = in, .w = weight, .offsets = off, .y = expected},
                 cpu.work());
    } else {
      ScaledGemm(cpu.stream(),
                 {.format = kMx, .x = in, .w = weight, .y = expected, .c = addend, .beta = beta}, cpu.work());
    }
    const Tensor wide =
        cpu.Make(DType::kBF16, {R, n + extra}, std::vector<double>(static_cast<size_t>(R * (n + extra)), -3));
    const Tensor y = wide.Cols(extra, n + extra), c = cpu.Make(DType::kBF16, {R, n}, ValuesOf(addend));
    const Mxfp8Rows problem{.n = n,
                            .k = k,
                            .x = Matrix(in, in_tiles),
                            .w = Matrix(weight, w_tiles),
                            .y = static_cast<char*>(y.data()),
                            .c = static_cast<const char*>(c.data()),
                            .y_ld = y.ld(),
                            .c_ld = n};
    for (const Mxfp8Range& range : ranges)
      Multiply<BFloat16>(GroupOf(problem, range), off.defined() ? 0 : beta);
    CHECK(RelativeL2(ValuesOf(y), ValuesOf(expected)) <
          3e-3);  // one rounding to BF16, with an addend another
    const std::vector<double> values = ValuesOf(wide);
    for (int64_t i = 0; i < R; ++i) {
      for (int64_t j = 0; j < (i < used ? extra : n + extra); ++j)
        CHECK(values[static_cast<size_t>(i * (n + extra) + j)] == -3);
    }
  };
  rows(x_rows, w_rows, N, K, 0, 0);
  rows(dy_rows, w_cols, K, N, 8, 1);

  const Tensor x_tiles = Tiles(cpu, TileColumnScaleShape(R, L, K)),
               dy_tiles = Tiles(cpu, TileColumnScaleShape(R, L, N));
  ColumnScalesToTiles(cpu.stream(), x_cols.scales, K, R, off, x_tiles);
  ColumnScalesToTiles(cpu.stream(), dy_cols.scales, N, R, off, dy_tiles);
  for (const double beta : {0.0, 1.0}) {
    const std::vector<double> start = RandomValues("dw", L * N * K);
    const Tensor dw = cpu.Make(DType::kF32, {L, N, K}, start),
                 expected = cpu.Make(DType::kF32, {L, N, K}, start);
    ScaledGemmWeight(
        cpu.stream(),
        {.format = kMx, .rows = R, .dy = dy_cols, .x = x_cols, .offsets = off, .dw = expected, .beta = beta},
        cpu.work());
    const Mxfp8Weight problem{.n = N,
                              .k = K,
                              .padded = P,
                              .dy = Matrix(dy_cols, dy_tiles),
                              .x = Matrix(x_cols, x_tiles),
                              .dw = dw.as<float>()};
    for (const Mxfp8Range& range : ranges) Multiply<float>(GroupOf(problem, range), beta);
    CHECK(RelativeL2(ValuesOf(dw), ValuesOf(expected)) < 1e-6);
  }
}

TEST_CASE("MXFP8 groups: what cuBLASLt is told multiplies to the products of the cpu device") {
  Check({{5, 0, 131, 1, 127}, 301, 96, 160});
  Check({{0, 0, 257}, 257, 160, 32});
  Check({{128, 256, 0}, 400, 32, 288});
  Check({{0, 0}, 9, 32, 64});
  Check({{}, 70, 64, 160});
  Check({{}, 129, 160, 96});
}

}  // namespace
}  // namespace yardmaster::testing
