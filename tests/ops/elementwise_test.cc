#include "src/ops/elementwise.h"

#include <cmath>

#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

TEST_CASE("add: apart and in place") {
  for (const int where : {0, 1, 2}) {  // y apart, y is a, y is b
    OpDeclaration op;
    op.name = "add";
    op.inputs = {{"a", {3, 37}, RandomValues("a", 111)}, {"b", {3, 37}, RandomValues("b", 111)}};
    op.outputs = {{"y", {3, 37}}};
    op.bf16 = true;
    op.forward = [where](const OpRun& r) {
      if (where) Copy(r.stream(), r[where == 1 ? "a" : "b"], r["y"]);
      Add(r.stream(), where == 1 ? r["y"] : r["a"], where == 2 ? r["y"] : r["b"], r["y"]);
    };
    op.backward = [](const OpRun& r) {
      Copy(r.stream(), r["d.y"], r["d.a"]);
      Copy(r.stream(), r["d.y"], r["d.b"]);
    };
    op.reference = [](const OpValues& in, OpValues& out) {
      for (size_t i = 0; i < 111; ++i) out["y"].push_back(in.at("a")[i] + in.at("b")[i]);
    };
    CheckOp(op);
  }
}

TEST_CASE("copy: strided rows") {
  OpDeclaration op;
  op.name = "copy";
  op.inputs = {{"x", {5, 7}, RandomValues("x", 35), true, DType::kF32, 4}};
  op.outputs = {{"y", {5, 7}, true, DType::kF32, 2}};
  op.bf16 = true;
  op.forward = [](const OpRun& r) { Copy(r.stream(), r["x"], r["y"]); };
  op.reference = [](const OpValues& in, OpValues& out) { out["y"] = in.at("x"); };
  op.tolerance_f64 = 0;
  op.tolerance_f32 = op.tolerance_bf16 = op.tolerance_device_f32 = 0;
  CheckOp(op);
}

TEST_CASE("copy: conversions round to nearest even and keep inf and NaN") {
  CpuFixture cpu;
  const std::vector<double> exact = {0, -1.5, 3.140625, INFINITY};  // BF16 holds them
  for (const DType from : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const DType to : {DType::kF32, DType::kF64, DType::kBF16}) {
      const Tensor x = cpu.Make(from, {2, 2}, exact), y = cpu.Make(to, {2, 2});
      Copy(cpu.stream(), x, y);
      CHECK(ValuesOf(y) == exact);
    }
  }
  const Tensor y = cpu.Make(DType::kBF16, {3});
  Copy(cpu.stream(), cpu.Make(DType::kF32, {3}, {1 + 0x1p-8, 1 + 3 * 0x1p-8, NAN}), y);  // both halfway
  CHECK(ValuesOf(y)[0] == 1);
  CHECK(ValuesOf(y)[1] == 1 + 0x1p-6);
  CHECK(std::isnan(ValuesOf(y)[2]));
  CHECK_THROWS_AS(Copy(cpu.stream(), cpu.Make(DType::kI32, {3}), y), InternalError);
}

TEST_CASE("fill: every type") {
  CpuFixture cpu;
  for (const DType t : {DType::kU8, DType::kU16, DType::kI32, DType::kI64, DType::kBF16, DType::kF32, DType::kF64}) {
    const Tensor y = cpu.Make(t, {2, 3});
    Fill(cpu.stream(), 3, y);
    CHECK(ValuesOf(y) == std::vector<double>(6, 3));
  }
  Fill(cpu.stream(), 1, cpu.Make(DType::kF32, {0, 4}));
}

}  // namespace
}  // namespace yardmaster::testing
