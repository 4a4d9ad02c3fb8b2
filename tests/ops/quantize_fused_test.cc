#include "src/ops/quantize_fused.h"

#include <cmath>

#include "src/ops/rmsnorm.h"
#include "src/ops/swiglu.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

struct Copies {
  Quantized rows, cols;
  std::string Bytes() const {
    return BytesOf(rows.codes) + BytesOf(rows.scales) + BytesOf(cols.codes) + BytesOf(cols.scales);
  }
};
Copies Make(CpuFixture& cpu, const QuantFormat& f, int64_t R, int64_t C, int64_t L) {
  const auto copy = [&](int64_t rows, int64_t K) {
    return Quantized{cpu.Make(DType::kU8, {rows, K}), cpu.Make(f.scale_type(), ScaleShape(f, rows, K))};
  };
  return {copy(R, C), copy(C, PaddedRows(R, L))};
}

TEST_CASE("fused quantisation: the bytes of the ops one after the other, ragged and dense") {
  const int64_t R = 20, C = 72, L = 3;
  for (const QuantFormat& format : {QuantFormat{QuantKind::kMxfp8}, QuantFormat{QuantKind::kFp8Block, true}}) {
    for (const bool ragged : {false, true}) {
      CpuFixture cpu;
      const int64_t groups = ragged ? L : 1;
      const Tensor off = ragged ? cpu.Make(DType::kI64, {L + 1}, {0, 7, 7, 17}) : Tensor();
      const Tensor gate_up = cpu.Make(DType::kF32, {R, 2 * C}, RandomValues("gate_up", R * 2 * C, -4, 4));
      const Tensor w = cpu.Make(DType::kF32, {R}, RandomValues("w", R)), act = cpu.Make(DType::kF32, {R, C});
      SwigluForward(cpu.stream(), {.gate_up = gate_up, .w = w, .act = act});
      const Copies a = Make(cpu, format, R, C, groups), b = Make(cpu, format, R, C, groups);
      QuantizeRows(cpu.stream(), {.format = format, .x = act, .offsets = off, .rows = a.rows, .cols = a.cols});
      QuantizeSwiglu(cpu.stream(), {.format = format, .gate_up = gate_up, .w = w, .offsets = off, .rows = b.rows, .cols = b.cols},
                     cpu.work());
      CHECK(a.Bytes() == b.Bytes());

      const Tensor x = cpu.Make(DType::kF32, {R, C}, RandomValues("x", R * C)), y = cpu.Make(DType::kF32, {R, C});
      const Tensor weight = cpu.Make(DType::kF32, {C}, RandomValues("weight", C)), rstd = cpu.Make(DType::kF32, {R});
      RmsNormForward(cpu.stream(), {.x = x, .w = weight, .y = y, .rstd = rstd});
      QuantizeRows(cpu.stream(), {.format = format, .x = y, .offsets = off, .rows = a.rows, .cols = a.cols});
      QuantizeNormed(cpu.stream(), {.format = format, .h = x, .rstd = rstd, .weight = weight, .offsets = off, .rows = b.rows, .cols = b.cols},
                     cpu.work());
      CHECK(a.Bytes() == b.Bytes());
      CHECK(cpu.work().top() == 0);
    }
  }
}

TEST_CASE("fused quantisation: shapes that do not fit are refused") {
  CpuFixture cpu;
  const QuantFormat format{QuantKind::kMxfp8};
  const Copies c = Make(cpu, format, 4, 32, 1);
  const Tensor gate_up = cpu.Make(DType::kF32, {4, 64}), h = cpu.Make(DType::kF32, {4, 32});
  CHECK_THROWS_AS(QuantizeSwiglu(cpu.stream(), {.format = format, .gate_up = h, .rows = c.rows}, cpu.work()), InternalError);
  CHECK_THROWS_AS(QuantizeSwiglu(cpu.stream(), {.format = format, .gate_up = gate_up, .w = cpu.Make(DType::kF32, {3}), .rows = c.rows},
                                 cpu.work()),
                  InternalError);
  CHECK_THROWS_AS(QuantizeNormed(cpu.stream(), {.format = format, .h = h, .rstd = cpu.Make(DType::kF32, {5}),
                                                .weight = cpu.Make(DType::kF32, {32}), .rows = c.rows},
                                 cpu.work()),
                  InternalError);
}

}  // namespace
}  // namespace yardmaster::testing
