#include "src/ops/scaled_gemm.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

Quantized Make(CpuFixture& cpu, const QuantFormat& f, const Shape& codes) {
  return {cpu.Make(DType::kU8, codes), cpu.Make(f.scale_type(), ScalesOf(f, codes))};
}

// Values whose magnitude changes from row to row and along a row, so that a wrong scale shows.
Tensor Source(CpuFixture& cpu, const std::string& name, const Shape& shape, int64_t used = -1) {
  const int64_t cols = shape[-1], rows = shape.elements() / cols;
  std::vector<double> values = RandomValues(name, rows * cols);
  for (int64_t i = 0; i < rows * cols; ++i) {
    values[static_cast<size_t>(i)] *= std::exp2(static_cast<double>(i / cols % 7 - i % cols / 32 % 5));
    if (used >= 0 && i / cols >= used) values[static_cast<size_t>(i)] = NAN;
  }
  return cpu.Make(DType::kF32, shape, values);
}

struct Case {
  QuantFormat format;
  std::vector<int64_t> counts;  // empty: dense, of `rows`
  int64_t rows, N, K;
};

// The product of the dequantised operands in double is the truth: what is left is the rounding of FP32 sums.
void Check(const Case& t) {
  CpuFixture cpu;
  const bool grouped = !t.counts.empty();
  const auto L = grouped ? static_cast<int64_t>(t.counts.size()) : 1;
  std::vector<double> offsets = {0};
  for (const int64_t n : t.counts) offsets.push_back(offsets.back() + static_cast<double>(n));
  if (!grouped) offsets.push_back(static_cast<double>(t.rows));
  const auto used = static_cast<int64_t>(offsets.back());
  const Tensor off = grouped ? cpu.Make(DType::kI64, {L + 1}, offsets) : Tensor();
  const int64_t R = t.rows, N = t.N, K = t.K, P = PaddedRows(R, L);
  const Tensor x = Source(cpu, "x", {R, K}, used), dy = Source(cpu, "dy", {R, N}, used), w = Source(cpu, "w", {L, N, K});
  const Quantized x_rows = Make(cpu, t.format, {R, K}), x_cols = Make(cpu, t.format, {K, P});
  const Quantized dy_rows = Make(cpu, t.format, {R, N}), dy_cols = Make(cpu, t.format, {N, P});
  const Quantized w_rows = Make(cpu, t.format, {L, N, K}), w_cols = Make(cpu, t.format, {L, K, N});
  QuantizeRows(cpu.stream(), {.format = t.format, .x = x, .offsets = off, .rows = x_rows, .cols = x_cols});
  QuantizeRows(cpu.stream(), {.format = t.format, .x = dy, .offsets = off, .rows = dy_rows, .cols = dy_cols});
  QuantizeWeights(cpu.stream(), {.format = t.format, .w = w, .rows = w_rows, .cols = w_cols});
  const Tensor xr = cpu.Make(DType::kF32, {R, K}), xc = cpu.Make(DType::kF32, {R, K});
  const Tensor dyr = cpu.Make(DType::kF32, {R, N}), dyc = cpu.Make(DType::kF32, {R, N});
  const Tensor wr = cpu.Make(DType::kF32, {L, N, K}), wc = cpu.Make(DType::kF32, {L, N, K});
  Dequantize(cpu.stream(), {.format = t.format, .rows = x_rows, .offsets = off, .out = xr});
  Dequantize(cpu.stream(), {.format = t.format, .cols = x_cols, .offsets = off, .out = xc});
  Dequantize(cpu.stream(), {.format = t.format, .rows = dy_rows, .offsets = off, .out = dyr});
  Dequantize(cpu.stream(), {.format = t.format, .cols = dy_cols, .offsets = off, .out = dyc});
  DequantizeWeights(cpu.stream(), {.format = t.format, .w = {}, .rows = w_rows}, wr);
  DequantizeWeights(cpu.stream(), {.format = t.format, .w = {}, .cols = w_cols}, wc);

  const double beta = grouped ? 0 : 0.5;
  const Tensor y = cpu.Make(DType::kF32, {R, N}, std::vector<double>(static_cast<size_t>(R * N), 3));
  const Tensor dx = cpu.Make(DType::kF32, {R, K}, std::vector<double>(static_cast<size_t>(R * K), 3));
  const Tensor dw = cpu.Make(DType::kF32, {L, N, K}, std::vector<double>(static_cast<size_t>(L * N * K), 2));
  ScaledGemm(cpu.stream(), {.format = t.format, .x = x_rows, .w = w_rows, .offsets = off, .y = y, .beta = beta}, cpu.work());
  ScaledGemm(cpu.stream(), {.format = t.format, .x = dy_rows, .w = w_cols, .offsets = off, .y = dx, .beta = beta}, cpu.work());
  ScaledGemmWeight(cpu.stream(), {.format = t.format, .rows = R, .dy = dy_cols, .x = x_cols, .offsets = off, .dw = dw, .beta = 0.25},
                   cpu.work());

  std::vector<double> y_true(static_cast<size_t>(R * N), 3), dx_true(static_cast<size_t>(R * K), 3);
  std::vector<double> dw_true(static_cast<size_t>(L * N * K), 0.5);
  const auto at = [](const Tensor& m, int64_t i) { return static_cast<double>(m.as<float>()[i]); };
  for (int64_t l = 0; l < L; ++l) {
    for (auto r = static_cast<int64_t>(offsets[static_cast<size_t>(l)]); r < static_cast<int64_t>(offsets[static_cast<size_t>(l) + 1]); ++r) {
      for (int64_t n = 0; n < N; ++n) y_true[static_cast<size_t>(r * N + n)] *= beta;
      for (int64_t k = 0; k < K; ++k) dx_true[static_cast<size_t>(r * K + k)] *= beta;
      for (int64_t n = 0; n < N; ++n) {
        for (int64_t k = 0; k < K; ++k) {
          const int64_t e = (l * N + n) * K + k;
          y_true[static_cast<size_t>(r * N + n)] += at(xr, r * K + k) * at(wr, e);
          dx_true[static_cast<size_t>(r * K + k)] += at(dyr, r * N + n) * at(wc, e);
          dw_true[static_cast<size_t>(e)] += at(dyc, r * N + n) * at(xc, r * K + k);
        }
      }
    }
  }
  CHECK(RelativeL2(ValuesOf(y), y_true) < 1e-6);
  CHECK(RelativeL2(ValuesOf(dx), dx_true) < 1e-6);
  CHECK(RelativeL2(ValuesOf(dw), dw_true) < 1e-6);
}

TEST_CASE("scaled gemm: products of the dequantised operands, three formats, dense and ragged") {
  for (const QuantFormat& format : {QuantFormat{QuantKind::kMxfp8}, QuantFormat{QuantKind::kFp8Block, true},
                                    QuantFormat{QuantKind::kFp8Block, false}}) {
    Check({format, {}, 70, 48, 300});
    Check({format, {}, 129, 130, 40});
    Check({format, {5, 0, 131, 1}, 150, 136, 70});
    Check({format, {0, 0}, 4, 8, 160});
  }
}

TEST_CASE("scaled gemm: multiprocessors left to others are none of the cpu device's business") {
  for (const QuantFormat& format : {QuantFormat{QuantKind::kMxfp8}, QuantFormat{QuantKind::kFp8Block, true}}) {
    for (const bool grouped : {true, false}) {
      CpuFixture cpu;
      const int64_t R = 40, N = 24, K = 36, L = grouped ? 2 : 1, P = PaddedRows(R, L);
      const Tensor off = grouped ? cpu.Make(DType::kI64, {3}, {0, 9, 40}) : Tensor();
      const Quantized dy = Make(cpu, format, {N, P}), x = Make(cpu, format, {K, P});
      QuantizeRows(cpu.stream(), {.format = format, .x = Source(cpu, "dy", {R, N}), .offsets = off, .cols = dy});
      QuantizeRows(cpu.stream(), {.format = format, .x = Source(cpu, "x", {R, K}), .offsets = off, .cols = x});
      const Tensor all = cpu.Make(DType::kF32, {L, N, K}), left = cpu.Make(DType::kF32, {L, N, K});
      ScaledGemmWeight(cpu.stream(), {.format = format, .rows = R, .dy = dy, .x = x, .offsets = off, .dw = all}, cpu.work());
      ScaledGemmWeight(cpu.stream(), {.format = format, .rows = R, .dy = dy, .x = x, .offsets = off, .dw = left, .free_sms = 16}, cpu.work());
      CHECK(BytesOf(all) == BytesOf(left));
    }
  }
}

TEST_CASE("scaled gemm: an addend of another tensor, a strided result") {
  CpuFixture cpu;
  const QuantFormat format{QuantKind::kFp8Block, true};
  const Tensor x = Source(cpu, "x", {6, 128}), w = Source(cpu, "w", {1, 5, 128});
  const Quantized qx = Make(cpu, format, {6, 128}), qw = Make(cpu, format, {1, 5, 128});
  QuantizeRows(cpu.stream(), {.format = format, .x = x, .rows = qx});
  QuantizeWeights(cpu.stream(), {.format = format, .w = w, .rows = qw});
  const Tensor y = cpu.Make(DType::kF32, {6, 5}), c = cpu.Make(DType::kF32, {6, 5}, RandomValues("c", 30));
  const Tensor wide = cpu.Make(DType::kF32, {6, 9}, std::vector<double>(54, -7));
  ScaledGemm(cpu.stream(), {.format = format, .x = qx, .w = qw, .y = y}, cpu.work());
  ScaledGemm(cpu.stream(), {.format = format, .x = qx, .w = qw, .y = wide.Cols(2, 7), .c = c, .beta = 2}, cpu.work());
  for (int64_t i = 0; i < 6; ++i) {
    CHECK(wide.as<float>()[i * 9 + 1] == -7);
    CHECK(wide.as<float>()[i * 9 + 7] == -7);
    for (int64_t j = 0; j < 5; ++j) {
      CHECK(wide.as<float>()[i * 9 + 2 + j] == Approx(y.as<float>()[i * 5 + j] + 2 * c.as<float>()[i * 5 + j]).epsilon(1e-6));
    }
  }
}

TEST_CASE("scaled gemm: a NaN in an operand reaches every result that its run is part of, and no other row") {
  CpuFixture cpu;
  for (const QuantFormat& format : {QuantFormat{QuantKind::kMxfp8}, QuantFormat{QuantKind::kFp8Block, true}}) {
    const Tensor x = Source(cpu, "x", {3, 256}), w = Source(cpu, "w", {1, 4, 256});
    x.as<float>()[256 + 9] = NAN;
    const Quantized qx = Make(cpu, format, {3, 256}), qw = Make(cpu, format, {1, 4, 256});
    QuantizeRows(cpu.stream(), {.format = format, .x = x, .rows = qx});
    QuantizeWeights(cpu.stream(), {.format = format, .w = w, .rows = qw});
    const Tensor y = cpu.Make(DType::kF32, {3, 4});
    ScaledGemm(cpu.stream(), {.format = format, .x = qx, .w = qw, .y = y}, cpu.work());
    for (int i = 0; i < 12; ++i) CHECK(std::isnan(y.as<float>()[i]) == (i / 4 == 1));
  }
}

// Which of the two runs is known on the GPU alone: mxfp8 as it is, with scales in tiles, or dequantised to BF16.
TEST_CASE("scaled gemm: the dry device plans mxfp8's memory for either way") {
  const QuantFormat format{QuantKind::kMxfp8};
  const auto dry = MakeDryDevice(DeviceKind::kCuda);
  const Stream stream(dry.get());
  const auto t = [](DType type, const Shape& shape) { return Tensor(nullptr, type, shape); };
  const auto quantized = [&](const Shape& codes) { return Quantized{t(DType::kU8, codes), t(DType::kU8, ScalesOf(format, codes))}; };
  const auto aligned = [](std::initializer_list<int64_t> bytes) {
    int64_t sum = 0;
    for (const int64_t n : bytes) sum += (n + 255) / 256 * 256;
    return sum;
  };
  for (const int64_t R : {8, 5000}) {
    const int64_t L = 40, N = 96, K = 160, P = PaddedRows(R, L);
    const Tensor offsets = t(DType::kI64, {L + 1});
    Arena rows("rows", dry.get()), weight("weight", dry.get()), portable("portable", dry.get());
    ScaledGemmArgs args{.format = format, .x = quantized({R, K}), .w = quantized({L, N, K}), .offsets = offsets,
                        .y = t(DType::kBF16, {R, N})};
    ScaledGemm(stream, args, rows);
    const int64_t in_bf16 = aligned({2 * R * K, 2 * L * N * K});
    CHECK(static_cast<int64_t>(rows.high_water()) == std::max(in_bf16, aligned({P / 128 * 2 * 512, L * 2 * 512})));
    args.grouped_gemm = GroupedGemmMode::kPortable;
    ScaledGemm(stream, args, portable);
    CHECK(static_cast<int64_t>(portable.high_water()) == in_bf16);
    ScaledGemmWeight(stream, {.format = format, .rows = R, .dy = quantized({N, P}), .x = quantized({K, P}), .offsets = offsets,
                              .dw = t(DType::kF32, {L, N, K})}, weight);
    const int64_t tiles = aligned({P / 128 * 512, P / 128 * 2 * 512}), bf16 = aligned({2 * R * N, 2 * R * K});
    CHECK((R == 8) == (tiles > bf16));  // the two cases of the plan
    CHECK(static_cast<int64_t>(weight.high_water()) == std::max(bf16, tiles));
    CHECK((rows.top() == 0 && weight.top() == 0));
  }
}

}  // namespace
}  // namespace yardmaster::testing
