// What does not fit is refused in the same words, whichever op it is given to.
#include <functional>
#include <string>

#include "src/ops/quantize.h"
#include "src/ops/quantize_fused.h"
#include "src/ops/scaled_gemm.h"
#include "src/ops/wire_rows.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

constexpr QuantFormat kMx{QuantKind::kMxfp8};

Quantized Make(CpuFixture& cpu, const Shape& codes) {
  return {cpu.Make(DType::kU8, codes), cpu.Make(kMx.scale_type(), ScalesOf(kMx, codes))};
}

// What an op says, from its own name on.
std::string Refusal(const std::function<void()>& op, const std::string& name) {
  try {
    op();
  } catch (const InternalError& error) {
    const std::string text = error.what();
    const size_t at = text.find(name);
    return at == std::string::npos ? text : text.substr(at + name.size());
  }
  return "nothing";
}

TEST_CASE("quantised operands: copies and scales of another shape, in every op that makes or multiplies them") {
  CpuFixture cpu;
  const int64_t R = 6, C = 64, N = 32;
  const Tensor x = cpu.Make(DType::kF32, {R, C}), gate_up = cpu.Make(DType::kF32, {R, 2 * C}), y = cpu.Make(DType::kF32, {R, N});
  const Tensor rstd = cpu.Make(DType::kF32, {R}), weight = cpu.Make(DType::kF32, {C});
  const Tensor wire = cpu.Make(DType::kU8, {R, WireBytes(kMx, C)});
  const Quantized w = Make(cpu, {1, N, C});
  Quantized codes = Make(cpu, {R, C + 32}), scales = Make(cpu, {R, C});
  scales.scales = cpu.Make(DType::kU8, {C / 32, R + 4});
  for (const auto& [rows, expected] : {std::pair<Quantized, std::string>{codes, ": {} is [6, 96], not [6, 64]"},
                                       {scales, ": {} is [2, 10], not [2, 8]"}}) {
    const auto says = [&, what = expected](const char* operand) { return std::string(what).replace(what.find("{}"), 2, operand); };
    CHECK(Refusal([&] { QuantizeRows(cpu.stream(), {.format = kMx, .x = x, .rows = rows}); }, "QuantizeRows") == says("rows"));
    CHECK(Refusal([&] { Dequantize(cpu.stream(), {.format = kMx, .rows = rows, .out = x}); }, "Dequantize") == says("rows"));
    CHECK(Refusal([&] { QuantizeSwiglu(cpu.stream(), {.format = kMx, .gate_up = gate_up, .rows = rows}, cpu.work()); },
                  "QuantizeSwiglu") == says("rows"));
    CHECK(Refusal([&] { QuantizeNormed(cpu.stream(), {.format = kMx, .h = x, .rstd = rstd, .weight = weight, .rows = rows}, cpu.work()); },
                  "QuantizeNormed") == says("rows"));
    CHECK(Refusal([&] { UnpackRows(cpu.stream(), {.format = kMx, .D = C, .wire = wire, .rows = rows}, cpu.work()); }, "UnpackRows") ==
          says("rows"));
  }
  CHECK(Refusal([&] { ScaledGemm(cpu.stream(), {.format = kMx, .x = scales, .w = w, .y = y}, cpu.work()); }, "ScaledGemm") ==
        ": x is [2, 10], not [2, 8]");
}

TEST_CASE("quantised operands: scales or tiles of another shape") {
  CpuFixture cpu;
  const int64_t R = 300, L = 2, N = 160, K = 96;
  const Tensor off = cpu.Make(DType::kI64, {L + 1}, {0, 100, 300});
  const Tensor rows = cpu.Make(DType::kU8, ScaleShape(kMx, R, K)), weights = cpu.Make(DType::kU8, WeightScaleShape(kMx, L, N, K));
  const Tensor columns = cpu.Make(DType::kU8, ScaleShape(kMx, K, PaddedRows(R, L)));
  const Tensor four = cpu.Make(DType::kU8, {4, 1, 512}), five = cpu.Make(DType::kU8, {5, 1, 512});
  ScalesToTiles(cpu.stream(), rows, R, off, four);
  WeightScalesToTiles(cpu.stream(), weights, four);
  ColumnScalesToTiles(cpu.stream(), columns, K, R, off, four);
  const std::string tiles = ": tiles is [5, 1, 512], not [4, 1, 512]";
  CHECK(Refusal([&] { ScalesToTiles(cpu.stream(), rows, R, off, five); }, "ScalesToTiles") == tiles);
  CHECK(Refusal([&] { WeightScalesToTiles(cpu.stream(), weights, five); }, "WeightScalesToTiles") == tiles);
  CHECK(Refusal([&] { ColumnScalesToTiles(cpu.stream(), columns, K, R, off, five); }, "ColumnScalesToTiles") == tiles);
  CHECK(Refusal([&] { ColumnScalesToTiles(cpu.stream(), rows, K, R, off, four); }, "ColumnScalesToTiles") ==
        ": scales is [3, 300], not [16, 96]");
}

TEST_CASE("quantised operands: widths that cuda does not take, and offsets without a group") {
  const std::unique_ptr<Device> dry = MakeDryDevice(DeviceKind::kCuda);
  const Stream stream(dry.get());
  Arena arena("tensors", dry.get());
  const auto make = [&](DType type, const Shape& shape) { return arena.Allocate("t", type, shape); };
  const std::string width = "40 columns: cuda takes multiples of 16";
  const Tensor bf16 = make(DType::kBF16, {4, 40}), rstd = make(DType::kF32, {4}), weight = make(DType::kBF16, {40});
  const Tensor wire = make(DType::kU8, {4, WireBytes(kMx, 40)});
  const auto tail = [](const std::string& text) { return text.size() < 38 ? text : text.substr(text.size() - 38); };
  CHECK(tail(Refusal([&] { QuantizeRows(stream, {.format = kMx, .x = bf16}); }, "")) == width);
  CHECK(tail(Refusal([&] { QuantizeSwiglu(stream, {.format = kMx, .gate_up = make(DType::kBF16, {4, 80})}, arena); }, "")) == width);
  CHECK(tail(Refusal([&] { QuantizeNormed(stream, {.format = kMx, .h = bf16, .rstd = rstd, .weight = weight}, arena); }, "")) == width);
  CHECK(tail(Refusal([&] { QuantizeWeights(stream, {.format = kMx, .w = make(DType::kF32, {1, 16, 40})}); }, "")) == width);
  CHECK(tail(Refusal([&] { PackRows(stream, {.format = kMx, .x = bf16, .wire = wire}, arena); }, "")) == width);
  CHECK(tail(Refusal([&] { UnpackRows(stream, {.format = kMx, .D = 40, .wire = wire}, arena); }, "")) == width);

  const std::string none = "offsets [1]: no group";
  const Tensor offsets = make(DType::kI64, {1}), x = make(DType::kBF16, {4, 32});
  const auto end = [&](const std::string& text) { return text.size() < none.size() ? text : text.substr(text.size() - none.size()); };
  CHECK(end(Refusal([&] { QuantizeRows(stream, {.format = kMx, .x = x, .offsets = offsets}); }, "")) == none);
  CHECK(end(Refusal([&] { QuantizeSwiglu(stream, {.format = kMx, .gate_up = make(DType::kBF16, {4, 64}), .offsets = offsets}, arena); }, "")) ==
        none);
  CHECK(end(Refusal([&] { UnpackRows(stream, {.format = kMx, .D = 32, .wire = make(DType::kU8, {4, WireBytes(kMx, 32)}), .offsets = offsets}, arena); },
                    "")) == none);
}

}  // namespace
}  // namespace yardmaster::testing
