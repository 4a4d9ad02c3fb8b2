#include "src/ops/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "src/tensor/safetensors.h"
#include "src/tensor/small_float.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

constexpr QuantFormat kMx{QuantKind::kMxfp8};
constexpr QuantFormat kPow2{QuantKind::kFp8Block, true};
constexpr QuantFormat kExact{QuantKind::kFp8Block, false};

Quantized MakeRows(CpuFixture& cpu, const QuantFormat& f, int64_t rows, int64_t K) {
  return {cpu.Make(DType::kU8, {rows, K}), cpu.Make(f.scale_type(), ScaleShape(f, rows, K))};
}
Quantized MakeWeights(CpuFixture& cpu, const QuantFormat& f, int64_t L, int64_t N, int64_t K) {
  return {cpu.Make(DType::kU8, {L, N, K}), cpu.Make(f.scale_type(), WeightScaleShape(f, L, N, K))};
}

SafetensorsFile Golden() { return SafetensorsFile("tests/golden/quant/quant.safetensors"); }

// fp8_block stores the scales of a row's runs apart from each other; golden files beside each other.
std::vector<double> ScalesByRow(const Tensor& scales, int64_t rows) {
  std::vector<double> out;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t b = 0; b < scales.dim(0); ++b) out.push_back(static_cast<double>(scales.as<float>()[b * scales.ld() + r]));
  return out;
}

// Codes that differ, and how many of these by more than one step.
std::pair<int64_t, int64_t> Differences(const Tensor& a, const Tensor& b) {
  int64_t differ = 0, far = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    const int d = std::abs(a.as<uint8_t>()[i] - b.as<uint8_t>()[i]);
    differ += d != 0;
    far += d > 1;
  }
  return {differ, far};
}

TEST_CASE("quantize: the golden E4M3 table") {
  const SafetensorsFile file = Golden();
  const Tensor table = file.Get("e4m3.table");
  for (int code = 0; code < 256; ++code) {
    const float ours = E4m3ToFloat(static_cast<uint8_t>(code)), golden = table.as<float>()[code];
    CHECK((std::isnan(golden) ? std::isnan(ours) : ours == golden));
  }
}

TEST_CASE("quantize: mxfp8 is the golden bytes, both directions, and dequantises to the golden values") {
  const SafetensorsFile file = Golden();
  CpuFixture cpu;
  const Tensor x = file.Get("x");
  const int64_t R = x.dim(0), C = x.dim(1), P = PaddedRows(R, 1);
  const Quantized rows = MakeRows(cpu, kMx, R, C), cols = MakeRows(cpu, kMx, C, P);
  QuantizeRows(cpu.stream(), {.format = kMx, .x = x, .rows = rows, .cols = cols});
  CHECK(BytesOf(rows.codes) == BytesOf(file.Get("mxfp8.row.data")));
  const Tensor row_scales = file.Get("mxfp8.row.scale_e8m0");  // [R, runs]; ours are [runs, R]
  for (int64_t r = 0; r < R; ++r) {
    for (int64_t b = 0; b < C / 32; ++b)
      CHECK(rows.scales.as<uint8_t>()[b * rows.scales.ld() + r] == row_scales.as<uint8_t>()[r * (C / 32) + b]);
  }
  const Tensor golden_codes = file.Get("mxfp8.col.data"), golden_scales = file.Get("mxfp8.col.scale_e8m0");
  int64_t wrong = 0, pad_not_zero = 0;
  for (int64_t c = 0; c < C; ++c) {
    for (int64_t p = 0; p < P; ++p) {
      const uint8_t code = cols.codes.as<uint8_t>()[c * P + p];
      if (p < R) wrong += code != golden_codes.as<uint8_t>()[c * R + p];
      if (p >= R) pad_not_zero += code != 0;
    }
    for (int64_t b = 0; b < R / 32; ++b) {
      wrong += cols.scales.as<uint8_t>()[b * cols.scales.ld() + c] != golden_scales.as<uint8_t>()[c * (R / 32) + b];
    }
  }
  CHECK(wrong == 0);
  CHECK(pad_not_zero == 0);
  const Tensor back = cpu.Make(DType::kF32, {R, C}), back_cols = cpu.Make(DType::kF32, {R, C});
  Dequantize(cpu.stream(), {.format = kMx, .rows = rows, .out = back});
  Dequantize(cpu.stream(), {.format = kMx, .cols = cols, .out = back_cols});
  CHECK(BytesOf(back) == BytesOf(file.Get("mxfp8.row.dequant")));
  const Tensor golden_t = file.Get("mxfp8.col.dequant_t");
  for (int64_t r = 0; r < R; ++r)
    for (int64_t c = 0; c < C; ++c) wrong += back_cols.as<float>()[r * C + c] != golden_t.as<float>()[c * R + r];
  CHECK(wrong == 0);
}

TEST_CASE("quantize: 1x128, powers of two bit for bit, exact scales within a step for one code in 10000") {
  const SafetensorsFile file = Golden();
  CpuFixture cpu;
  const Tensor x = file.Get("tile.x");
  const int64_t R = x.dim(0), C = x.dim(1);
  for (const QuantFormat& format : {kPow2, kExact}) {
    const std::string name = format.power_of_two ? "tile.1x128.pow2" : "tile.1x128.exact";
    const Quantized rows = MakeRows(cpu, format, R, C);
    QuantizeRows(cpu.stream(), {.format = format, .x = x, .rows = rows});
    CHECK(ScalesByRow(rows.scales, R) == ValuesOf(file.Get(name + ".scale")));
    const auto [differ, far] = Differences(rows.codes, file.Get(name + ".data"));
    CHECK(far == 0);
    if (format.power_of_two) CHECK(differ == 0);
    CHECK(differ * 10000 < rows.codes.elements());
  }
}

TEST_CASE("quantize: 128x128, powers of two bit for bit, exact scales within a step for one code in 10000") {
  const SafetensorsFile file = Golden();
  CpuFixture cpu;
  const Tensor w = file.Get("block.w").Reshape({1, 256, 384});
  // The golden codes of this block come from values before their rounding to the BF16 that the file holds.
  const int64_t unrounded = 1;
  for (const QuantFormat& format : {kPow2, kExact}) {
    const std::string name = format.power_of_two ? "block.128x128.pow2" : "block.128x128.exact";
    const Quantized weight = MakeWeights(cpu, format, 1, 256, 384);
    QuantizeWeights(cpu.stream(), {.format = format, .w = w, .rows = weight});
    const Tensor codes = file.Get(name + ".data"), scales = file.Get(name + ".scale");
    int64_t differ = 0, far = 0;
    for (int64_t i = 0; i < weight.codes.elements(); ++i) {
      const int step = std::abs(weight.codes.as<uint8_t>()[i] - codes.as<uint8_t>()[i]);
      far += step > 1;
      if (i / 384 / 128 * 3 + i % 384 / 128 != unrounded) differ += step != 0;
    }
    CHECK(far == 0);
    CHECK(differ * 10000 < weight.codes.elements());
    if (format.power_of_two) CHECK(differ == 0);
    for (int64_t b = 0; b < 6; ++b) {
      const float ours = weight.scales.as<float>()[b], golden = scales.as<float>()[b];
      if (b == unrounded) CHECK(ours == Approx(golden).epsilon(0.004));
      if (b != unrounded) CHECK(ours == golden);
    }
  }
}

TEST_CASE("quantize: a weight's transposed copy holds the same codes in 128x128 blocks, runs along N in mxfp8") {
  CpuFixture cpu;
  const int64_t L = 2, N = 130, K = 200;  // last blocks are short
  const Tensor w = cpu.Make(DType::kF32, {L, N, K}, RandomValues("w", L * N * K));
  const Quantized rows = MakeWeights(cpu, kPow2, L, N, K), cols = MakeWeights(cpu, kPow2, L, K, N);
  QuantizeWeights(cpu.stream(), {.format = kPow2, .w = w, .rows = rows, .cols = cols});
  int64_t wrong = 0;
  for (int64_t l = 0; l < L; ++l)
    for (int64_t n = 0; n < N; ++n)
      for (int64_t k = 0; k < K; ++k)
        wrong += rows.codes.as<uint8_t>()[(l * N + n) * K + k] != cols.codes.as<uint8_t>()[(l * K + k) * N + n];
  CHECK(wrong == 0);
  // The transposed copy of mxfp8 is the row-wise copy of the transposed matrix.
  const Tensor wt = cpu.Make(DType::kF32, {L, K, N});
  for (int64_t l = 0; l < L; ++l)
    for (int64_t n = 0; n < N; ++n)
      for (int64_t k = 0; k < K; ++k) wt.as<float>()[(l * K + k) * N + n] = w.as<float>()[(l * N + n) * K + k];
  const Quantized mx = MakeWeights(cpu, kMx, L, K, N), mx_t = MakeWeights(cpu, kMx, L, K, N);
  QuantizeWeights(cpu.stream(), {.format = kMx, .w = w, .cols = mx});
  QuantizeWeights(cpu.stream(), {.format = kMx, .w = wt, .rows = mx_t});
  CHECK(BytesOf(mx.codes) == BytesOf(mx_t.codes));
  CHECK(BytesOf(mx.scales) == BytesOf(mx_t.scales));
  const Tensor back = cpu.Make(DType::kF32, {L, N, K}), back_t = cpu.Make(DType::kF32, {L, N, K});
  DequantizeWeights(cpu.stream(), {.format = kPow2, .w = {}, .rows = rows}, back);
  DequantizeWeights(cpu.stream(), {.format = kPow2, .w = {}, .cols = cols}, back_t);
  CHECK(BytesOf(back) == BytesOf(back_t));
  CHECK(RelativeL2(ValuesOf(back), ValuesOf(w)) < 0.04);
  DequantizeWeights(cpu.stream(), {.format = kMx, .w = {}, .cols = mx}, back);
  CHECK(RelativeL2(ValuesOf(back), ValuesOf(w)) < 0.04);
}

// Every group alone gives what it gives among others: runs never reach across groups, and nothing beyond them is touched.
void CheckRagged(const QuantFormat& format, const std::vector<int64_t>& counts, int64_t tail, int64_t C) {
  CpuFixture cpu;
  const auto L = static_cast<int64_t>(counts.size());
  std::vector<double> offsets = {0};
  for (const int64_t n : counts) offsets.push_back(offsets.back() + static_cast<double>(n));
  const auto used = static_cast<int64_t>(offsets.back()), R = used + tail, P = PaddedRows(R, L);
  std::vector<double> values = RandomValues("ragged", used * C);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= std::exp2(static_cast<double>(i / static_cast<size_t>(C) % 40));
  values.resize(static_cast<size_t>(R * C), NAN);
  const Tensor x = cpu.Make(DType::kF32, {R, C}, values), off = cpu.Make(DType::kI64, {L + 1}, offsets);
  const Quantized rows = MakeRows(cpu, format, R, C), cols = MakeRows(cpu, format, C, P);
  for (const Tensor& t : {rows.codes, cols.codes}) std::memset(t.data(), 0x55, static_cast<size_t>(t.bytes()));
  QuantizeRows(cpu.stream(), {.format = format, .x = x, .offsets = off, .rows = rows, .cols = cols});
  int64_t wrong = 0, begin = 0, padded = 0;
  for (const int64_t n : counts) {
    const int64_t p = (n + 127) / 128 * 128;
    const Quantized alone = MakeRows(cpu, format, n, C), alone_cols = MakeRows(cpu, format, C, PaddedRows(n, 1));
    QuantizeRows(cpu.stream(), {.format = format, .x = x.Slice(begin, begin + n), .rows = alone, .cols = alone_cols});
    wrong += std::memcmp(alone.codes.data(), rows.codes.as<uint8_t>() + begin * C, static_cast<size_t>(n * C)) != 0;
    for (int64_t c = 0; c < C; ++c) {
      for (int64_t i = 0; i < p; ++i) {
        const uint8_t code = cols.codes.as<uint8_t>()[c * P + padded + i];
        wrong += code != alone_cols.codes.as<uint8_t>()[c * p + i] || (i >= n && code != 0);
      }
    }
    begin += n;
    padded += p;
  }
  for (int64_t i = used * C; i < R * C; ++i) wrong += rows.codes.as<uint8_t>()[i] != 0x55;
  for (int64_t c = 0; c < C; ++c)
    for (int64_t i = padded; i < P; ++i) wrong += cols.codes.as<uint8_t>()[c * P + i] != 0x55;
  CHECK(wrong == 0);
  const Tensor back = cpu.Make(DType::kF32, {R, C}), back_cols = cpu.Make(DType::kF32, {R, C});
  Dequantize(cpu.stream(), {.format = format, .rows = rows, .offsets = off, .out = back});
  Dequantize(cpu.stream(), {.format = format, .cols = cols, .offsets = off, .out = back_cols});
  for (int64_t i = used * C; i < R * C; ++i) wrong += back.as<float>()[i] != 0 || back_cols.as<float>()[i] != 0;
  CHECK(wrong == 0);
  CHECK(RelativeL2(ValuesOf(back.Slice(0, used)), ValuesOf(x.Slice(0, used))) < 0.04);
  CHECK(RelativeL2(ValuesOf(back_cols.Slice(0, used)), ValuesOf(x.Slice(0, used))) < 0.04);
}

TEST_CASE("quantize: ragged groups: empty, one row, primes, aligned, rows of nobody") {
  for (const QuantFormat& format : {kMx, kPow2, kExact}) {
    CheckRagged(format, {3, 0, 131, 1, 128, 0}, 5, 96);
    CheckRagged(format, {0, 0, 257}, 0, 130);
    CheckRagged(format, {1, 1, 1}, 200, 32);
  }
}

TEST_CASE("quantize: no rows at all write nothing") {
  CpuFixture cpu;
  const Tensor x = cpu.Make(DType::kF32, {4, 64}, std::vector<double>(256, NAN)), off = cpu.Make(DType::kI64, {3}, {0, 0, 0});
  const Quantized rows = MakeRows(cpu, kMx, 4, 64), cols = MakeRows(cpu, kMx, 64, PaddedRows(4, 2));
  QuantizeRows(cpu.stream(), {.format = kMx, .x = x, .offsets = off, .rows = rows, .cols = cols});
  CHECK(ValuesOf(rows.codes) == std::vector<double>(256, 0));
  CHECK(ValuesOf(cols.codes) == std::vector<double>(static_cast<size_t>(cols.codes.elements()), 0));
}

TEST_CASE("quantize: strided rows, BF16 as F32") {
  CpuFixture cpu;
  const Tensor wide = cpu.Make(DType::kBF16, {7, 100}, RandomValues("wide", 700)), x = wide.Cols(3, 67);
  const Tensor dense = cpu.Make(DType::kF32, {7, 64}, ValuesOf(x));
  for (const QuantFormat& format : {kMx, kExact}) {
    const Quantized a = MakeRows(cpu, format, 7, 64), b = MakeRows(cpu, format, 7, 64);
    QuantizeRows(cpu.stream(), {.format = format, .x = x, .rows = a});
    QuantizeRows(cpu.stream(), {.format = format, .x = dense, .rows = b});
    CHECK(BytesOf(a.codes) == BytesOf(b.codes));
    CHECK(BytesOf(a.scales) == BytesOf(b.scales));
  }
}

// What becomes of one run of 128 or 32 that holds `special` and ones otherwise.
struct RunResult {
  uint8_t special, other;
  double scale;
  float special_back, other_back;
};
RunResult QuantizeRun(const QuantFormat& format, float special, float other) {
  CpuFixture cpu;
  const int64_t n = format.run();
  const Tensor x = cpu.Make(DType::kF32, {1, n});
  std::fill(x.as<float>(), x.as<float>() + n, other);
  x.as<float>()[5] = special;
  const Quantized rows = MakeRows(cpu, format, 1, n);
  QuantizeRows(cpu.stream(), {.format = format, .x = x, .rows = rows});
  const Tensor back = cpu.Make(DType::kF32, {1, n});
  Dequantize(cpu.stream(), {.format = format, .rows = rows, .out = back});
  return {rows.codes.as<uint8_t>()[5], rows.codes.as<uint8_t>()[6], ValuesOf(rows.scales)[0], back.as<float>()[5],
          back.as<float>()[6]};
}

TEST_CASE("quantize: special values of fp8_block") {
  for (const QuantFormat& format : {kPow2, kExact}) {
    CHECK(QuantizeRun(format, 0, 0).scale == 1);
    CHECK(QuantizeRun(format, -0.0f, 0).special == 0x80);
    CHECK(QuantizeRun(format, 448, 1).scale == 1);
    CHECK(QuantizeRun(format, 448, 1).special == 0x7E);
    const float above = std::nextafter(448.0f, 500.0f);
    CHECK(QuantizeRun(format, above, 1).scale == (format.power_of_two ? 2 : static_cast<double>(above / 448)));
    CHECK(QuantizeRun(format, above, 1).special == (format.power_of_two ? 0x76 : 0x7E));  // 224, 448
    CHECK(QuantizeRun(format, -above, 1).special == (format.power_of_two ? 0xF6 : 0xFE));
    // Tiny runs: the scale stays a normal number, codes lose bits below it.
    CHECK(QuantizeRun(format, 0x1p-149f, 0).scale == std::ldexp(1.0, -126));
    CHECK(QuantizeRun(format, 0x1p-149f, 0).special == 0);
    CHECK(QuantizeRun(format, 0x1p-126f, 0).special_back == 0x1p-126f);
    // A huge value beside one: one is lost, the large value kept.
    const RunResult huge = QuantizeRun(format, 3e38f, 1);
    CHECK(huge.other == 0);
    CHECK(huge.special_back == Approx(3e38f).epsilon(0.07));
    // Infinity and NaN spoil their run, and say so.
    for (const float bad : {INFINITY, -INFINITY, static_cast<float>(NAN)}) {
      const RunResult r = QuantizeRun(format, bad, 1);
      CHECK(std::isnan(r.scale));
      CHECK(r.special == 0x7F);
      CHECK(r.other == 0x7F);
      CHECK(std::isnan(r.other_back));
    }
  }
}

TEST_CASE("quantize: special values of mxfp8") {
  CHECK(QuantizeRun(kMx, 0, 0).scale == 0);
  CHECK(QuantizeRun(kMx, 0, 0).other == 0);
  CHECK(QuantizeRun(kMx, -0.0f, 0).special == 0x80);
  CHECK(QuantizeRun(kMx, 448, 1).scale == 127);
  CHECK(QuantizeRun(kMx, 448, 1).special == 0x7E);
  CHECK(QuantizeRun(kMx, std::nextafter(448.0f, 500.0f), 1).scale == 128);
  CHECK(QuantizeRun(kMx, std::nextafter(448.0f, 500.0f), 1).special == 0x76);
  CHECK(QuantizeRun(kMx, 0x1p-149f, 0).scale == 0);
  CHECK(QuantizeRun(kMx, 0x1p-149f, 0).special == 0);
  CHECK(QuantizeRun(kMx, 0x1p-133f, 0).special_back == 0x1p-133f);
  CHECK(QuantizeRun(kMx, 3e38f, 1).scale == 247);
  CHECK(QuantizeRun(kMx, 3e38f, 1).other == 0);
  // Within 1/32 of the end of FP32 the nearest code stands for 2^128.
  CHECK(std::isinf(QuantizeRun(kMx, 3.4028235e38f, 1).special_back));
  for (const float bad : {INFINITY, -INFINITY, static_cast<float>(NAN)}) {
    const RunResult r = QuantizeRun(kMx, bad, 1);
    CHECK(r.scale == 255);
    CHECK(r.other == 0x7F);
    CHECK(std::isnan(r.special_back));
    CHECK(std::isnan(r.other_back));
  }
}

TEST_CASE("quantize: of FP32's largest values those from 31/32 of 2^128 on decode to infinity, with exact scales none") {
  const float first = 0x1.fp127f, largest = std::numeric_limits<float>::max();
  for (const QuantFormat& format : {kMx, kPow2}) {
    CHECK(std::isinf(QuantizeRun(format, first, 1).special_back));
    CHECK(std::isinf(QuantizeRun(format, largest, 1).special_back));
    CHECK(QuantizeRun(format, std::nextafter(first, 0.0f), 1).special_back == 0x1.ep127f);
  }
  for (float x = largest; x > first; x -= 0x1p104f * 65521) CHECK(std::isfinite(QuantizeRun(kExact, x, 1).special_back));
}

TEST_CASE("quantize: a huge row beside a tiny one costs it nothing in its own runs, everything in the shared column runs") {
  CpuFixture cpu;
  const Tensor x = cpu.Make(DType::kF32, {2, 128});
  for (int64_t c = 0; c < 128; ++c) x.as<float>()[c] = 1e30f, x.as<float>()[128 + c] = 1e-3f;
  for (const QuantFormat& format : {kMx, kPow2, kExact}) {
    const Quantized rows = MakeRows(cpu, format, 2, 128), cols = MakeRows(cpu, format, 128, 128);
    QuantizeRows(cpu.stream(), {.format = format, .x = x, .rows = rows, .cols = cols});
    const Tensor back = cpu.Make(DType::kF32, {2, 128});
    Dequantize(cpu.stream(), {.format = format, .rows = rows, .out = back});
    CHECK(back.as<float>()[128] == Approx(1e-3f).epsilon(0.04));
    Dequantize(cpu.stream(), {.format = format, .cols = cols, .out = back});
    CHECK(back.as<float>()[0] == Approx(1e30f).epsilon(0.04));
    CHECK(back.as<float>()[128] == 0);
  }
}

TEST_CASE("quantize: scales in tiles of 128 x 4, groups at multiples of 128 rows, zeros where there is nothing") {
  CpuFixture cpu;
  const int64_t R = 300, runs = 6;
  const Tensor scales = cpu.Make(DType::kU8, {runs, R});
  for (int64_t i = 0; i < R * runs; ++i) scales.as<uint8_t>()[i] = static_cast<uint8_t>(1 + i % 250);
  const Tensor off = cpu.Make(DType::kI64, {4}, {0, 130, 130, 290});
  const Tensor tiles = cpu.Make(DType::kU8, TileScaleShape(R, 3, runs));
  ScalesToTiles(cpu.stream(), scales, R, off, tiles);
  const std::vector<int64_t> first_tile = {0, 2, 2}, begin = {0, 130, 130}, count = {130, 0, 160};
  std::vector<uint8_t> expected(static_cast<size_t>(4 * 2 * 512), 0);
  for (size_t g = 0; g < 3; ++g) {
    for (int64_t r = 0; r < count[g]; ++r) {
      for (int64_t c = 0; c < runs; ++c) {
        // Row r of 128, run c of 4: the order of 32 rows interleaved by four.
        const int64_t tile = (first_tile[g] + r / 128) * 2 + c / 4, q = r % 128;
        expected[static_cast<size_t>(tile * 512 + (q % 32) * 16 + (q / 32) * 4 + c % 4)] =
            scales.as<uint8_t>()[c * R + begin[g] + r];
      }
    }
  }
  CHECK(std::memcmp(expected.data(), tiles.data(), expected.size()) == 0);
  // Rows 0, 32, 64, 96, 1, 33, ... follow each other, four runs each.
  CHECK(tiles.as<uint8_t>()[4] == scales.as<uint8_t>()[32]);
  CHECK(tiles.as<uint8_t>()[16] == scales.as<uint8_t>()[1]);
}

// Where NVIDIA's documentation puts the scale of row r, run c of a matrix with that many runs: tiles of 128 x
// 4, row tile by row tile.
size_t TileByte(int64_t r, int64_t c, int64_t runs) {
  const int64_t tile = r / 128 * ((runs + 3) / 4) + c / 4;
  return static_cast<size_t>(tile * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4);
}

TEST_CASE("quantize: tiles of weights' scales, a matrix of its own each") {
  CpuFixture cpu;
  for (const auto& [L, N, runs] :
       {std::tuple<int64_t, int64_t, int64_t>{3, 200, 6}, {1, 128, 4}, {2, 16, 1}}) {
    const Tensor scales = cpu.Make(DType::kU8, {L, runs, N}),
                 tiles = cpu.Make(DType::kU8, TileWeightScaleShape(L, N, runs));
    for (int64_t i = 0; i < scales.elements(); ++i)
      scales.as<uint8_t>()[i] = static_cast<uint8_t>(1 + i % 251);
    std::memset(tiles.data(), 0xFF, static_cast<size_t>(tiles.bytes()));
    WeightScalesToTiles(cpu.stream(), scales, tiles);
    std::vector<uint8_t> expected(static_cast<size_t>(tiles.bytes()), 0);
    const size_t each = expected.size() / static_cast<size_t>(L);
    for (int64_t l = 0; l < L; ++l) {
      for (int64_t c = 0; c < runs; ++c) {
        for (int64_t n = 0; n < N; ++n)
          expected[static_cast<size_t>(l) * each + TileByte(n, c, runs)] =
              scales.as<uint8_t>()[(l * runs + c) * N + n];
      }
    }
    CHECK(std::memcmp(expected.data(), tiles.data(), expected.size()) == 0);
  }
}

TEST_CASE("quantize: tiles of a transposed copy's scales, groups along the contraction") {
  CpuFixture cpu;
  const int64_t C = 200, R = 700, L = 5;
  const std::vector<int64_t> counts = {130, 0, 1, 384, 129};
  const Tensor off = cpu.Make(DType::kI64, {L + 1}, {0, 130, 130, 131, 515, 644});
  const Tensor scales = cpu.Make(DType::kU8, {PaddedRows(R, L) / 32, C});
  for (int64_t i = 0; i < scales.elements(); ++i) scales.as<uint8_t>()[i] = static_cast<uint8_t>(1 + i % 251);
  const Tensor tiles = cpu.Make(DType::kU8, TileColumnScaleShape(R, L, C));
  std::memset(tiles.data(), 0xFF, static_cast<size_t>(tiles.bytes()));
  ColumnScalesToTiles(cpu.stream(), scales, C, R, off, tiles);
  std::vector<uint8_t> expected(static_cast<size_t>(tiles.bytes()), 0xFF);
  int64_t run0 = 0;  // of the group, in the aligned row space; its tiles begin where those of as many runs
                     // and all rows end
  for (const int64_t count : counts) {
    const int64_t runs = (count + 127) / 128 * 4;
    uint8_t* const group = expected.data() + run0 / 4 * ((C + 127) / 128) * 512;
    std::memset(group, 0, static_cast<size_t>(runs / 4 * ((C + 127) / 128) * 512));
    for (int64_t c = 0; c < runs; ++c) {
      for (int64_t r = 0; r < C; ++r) group[TileByte(r, c, runs)] = scales.as<uint8_t>()[(run0 + c) * C + r];
    }
    run0 += runs;
  }
  CHECK(std::memcmp(expected.data(), tiles.data(), expected.size()) == 0);
}

TEST_CASE("quantize: the same bytes with any number of threads") {
  std::string bytes[2];
  for (int i = 0; i < 2; ++i) {
    CpuFixture cpu(i == 0 ? 1 : 3);
    const Tensor x = cpu.Make(DType::kF32, {500, 96}, RandomValues("threads", 500 * 96));
    const Quantized rows = MakeRows(cpu, kPow2, 500, 96), cols = MakeRows(cpu, kPow2, 96, PaddedRows(500, 1));
    QuantizeRows(cpu.stream(), {.format = kPow2, .x = x, .rows = rows, .cols = cols});
    bytes[i] = BytesOf(rows.codes) + BytesOf(cols.codes) + BytesOf(cols.scales);
  }
  CHECK(bytes[0] == bytes[1]);
}

TEST_CASE("quantize: what does not fit is refused") {
  CpuFixture cpu;
  const Tensor x = cpu.Make(DType::kF32, {3, 64});
  const Quantized rows = MakeRows(cpu, kMx, 3, 64);
  CHECK_THROWS_AS(QuantizeRows(cpu.stream(), {.format = kMx, .x = cpu.Make(DType::kF64, {3, 64}), .rows = rows}), InternalError);
  CHECK_THROWS_AS(QuantizeRows(cpu.stream(), {.format = kPow2, .x = x, .rows = rows}), InternalError);
  CHECK_THROWS_AS(QuantizeRows(cpu.stream(), {.format = kMx, .x = x, .cols = rows}), InternalError);
  CHECK_THROWS_AS(
      QuantizeRows(cpu.stream(), {.format = kMx, .x = x, .offsets = cpu.Make(DType::kI64, {2}, {0, 4}), .rows = rows}),
      InternalError);
}

}  // namespace
}  // namespace yardmaster::testing
