#include "src/ops/wire_rows.h"

#include <cmath>
#include <cstring>

#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

constexpr QuantFormat kMx{QuantKind::kMxfp8};
constexpr QuantFormat kBlock{QuantKind::kFp8Block, true};

Quantized Copy(CpuFixture& cpu, const QuantFormat& f, int64_t rows, int64_t columns) {
  return {cpu.Make(DType::kU8, {rows, columns}), cpu.Make(f.scale_type(), ScaleShape(f, rows, columns))};
}

TEST_CASE("wire rows: a row is its codes, then its scales, in a multiple of 16 bytes") {
  CHECK(WireBytes(kBlock, 7168) == 7168 + 7168 / 32);
  CHECK(WireBytes(kMx, 7168) == 7168 + 7168 / 32);
  CHECK(WireBytes(kBlock, 10) == 32);
  CpuFixture cpu;
  for (const QuantFormat& format : {kMx, kBlock}) {
    const int64_t T = 5, D = 200, W = WireBytes(format, D), runs = (D + format.run() - 1) / format.run();
    const Tensor x = cpu.Make(DType::kF32, {T, D}, RandomValues("x", T * D, -3, 3)), wire = cpu.Make(DType::kU8, {T, W});
    PackRows(cpu.stream(), {.format = format, .x = x, .wire = wire}, cpu.work());
    const Quantized rows = Copy(cpu, format, T, D);
    QuantizeRows(cpu.stream(), {.format = format, .x = x, .rows = rows});
    const uint8_t* bytes = wire.as<uint8_t>();
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t d = 0; d < D; ++d) CHECK(bytes[t * W + d] == rows.codes.as<uint8_t>()[t * D + d]);
      for (int64_t run = 0; run < runs; ++run) {
        const uint8_t* scale = bytes + t * W + WireScales(D) + run * DTypeBytes(format.scale_type());
        if (format == kMx) {
          CHECK(*scale == rows.scales.as<uint8_t>()[run * rows.scales.ld() + t]);
        } else {
          float value;
          std::memcpy(&value, scale, sizeof(value));
          CHECK(value == rows.scales.as<float>()[run * rows.scales.ld() + t]);
        }
      }
    }
  }
}

TEST_CASE("wire rows: received rows have the values that were packed, and columns are those of these values") {
  const int64_t R = 300, D = 272, L = 4, used = 290;
  for (const QuantFormat& format : {kMx, kBlock}) {
    for (const bool ragged : {false, true}) {
      CpuFixture cpu;
      const int64_t n = ragged ? used : R, groups = ragged ? L : 1;
      std::vector<double> values = RandomValues("x", R * D, -3, 3);
      for (int64_t d = 0; d < D; ++d) {
        values[static_cast<size_t>(d)] *= 1e-30, values[static_cast<size_t>(D + d)] *= 1e20;
        values[static_cast<size_t>(2 * D + d)] = 224.1;  // rounds down to half of its run's largest value
      }
      values[static_cast<size_t>(5 * D + 3)] = INFINITY;  // its run is NaN, as without a wire
      const Tensor x = cpu.Make(DType::kF32, {R, D}, values), wire = cpu.Make(DType::kU8, {R, WireBytes(format, D)});
      const Tensor off = ragged ? cpu.Make(DType::kI64, {L + 1}, {0, 130, 130, 131, static_cast<double>(used)}) : Tensor();
      PackRows(cpu.stream(), {.format = format, .x = x, .wire = wire}, cpu.work());
      const Quantized direct = Copy(cpu, format, R, D), rows = Copy(cpu, format, R, D);
      const Quantized cols = Copy(cpu, format, D, PaddedRows(R, groups)), expected = Copy(cpu, format, D, PaddedRows(R, groups));
      QuantizeRows(cpu.stream(), {.format = format, .x = x, .offsets = off, .rows = direct});
      UnpackRows(cpu.stream(), {.format = format, .D = D, .wire = wire, .offsets = off, .rows = rows, .cols = cols}, cpu.work());
      const Tensor a = cpu.Make(DType::kF32, {R, D}), b = cpu.Make(DType::kF32, {R, D});
      Dequantize(cpu.stream(), {.format = format, .rows = direct, .offsets = off, .out = a});
      Dequantize(cpu.stream(), {.format = format, .rows = rows, .offsets = off, .out = b});
      int64_t different = 0, finite = 0;
      for (int64_t i = 0; i < n * D; ++i) {
        const float p = a.as<float>()[i], q = b.as<float>()[i];
        different += !(p == q || (std::isnan(p) && std::isnan(q)));
        finite += std::isfinite(p);
      }
      CHECK(different == 0);
      CHECK(finite == n * D - (format == kMx ? 32 : 128));
      QuantizeRows(cpu.stream(), {.format = format, .x = a, .offsets = off, .cols = expected});
      CHECK(BytesOf(cols.codes) == BytesOf(expected.codes));
      CHECK(BytesOf(cols.scales) == BytesOf(expected.scales));
      CHECK(cpu.work().top() == 0);
    }
  }
}

TEST_CASE("wire rows: exact scales are refused") {
  CpuFixture cpu;
  const QuantFormat exact{QuantKind::kFp8Block, false};
  const Tensor x = cpu.Make(DType::kF32, {2, 128}, RandomValues("x", 256)), wire = cpu.Make(DType::kU8, {2, WireBytes(exact, 128)});
  CHECK_THROWS_AS(PackRows(cpu.stream(), {.format = exact, .x = x, .wire = wire}, cpu.work()), InternalError);
}

}  // namespace
}  // namespace yardmaster::testing
