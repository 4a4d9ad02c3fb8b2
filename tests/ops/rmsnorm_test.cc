#include "src/ops/rmsnorm.h"

#include <cmath>

#include "src/ops/elementwise.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

struct NormCase {
  int64_t n_T, D;
  bool residual = false;
  int64_t padding = 0;   // of x, and of dh
  bool dh_is_dy = false, dh_is_dresidual = false;
};

void CheckNorm(const NormCase& c) {
  const double eps = 1e-3;  // large enough to be seen
  OpDeclaration op;
  op.name = "rmsnorm";
  op.inputs = {{"x", {c.n_T, c.D}, RandomValues("x", c.n_T * c.D), true, DType::kF32, c.padding},
               {.name = "w", .shape = {c.D}, .values = RandomValues("w", c.D, 0.5, 1.5), .main_gradient = true}};
  op.outputs = {{"y", {c.n_T, c.D}}, {.name = "rstd", .shape = {c.n_T}, .differentiable = false, .accum = true}};
  op.bf16 = true;
  if (c.residual) {
    op.inputs.push_back({"residual", {c.n_T, c.D}, RandomValues("residual", c.n_T * c.D)});
    op.outputs.push_back({"h", {c.n_T, c.D}});
  }
  op.forward = [c, eps](const OpRun& r) {
    RmsNormArgs args{.x = r["x"], .w = r["w"], .eps = eps, .y = r["y"], .rstd = r["rstd"]};
    if (c.residual) args.residual = r["residual"], args.h = r["h"];
    RmsNormForward(r.stream(), args);
  };
  op.backward = [c](const OpRun& r) {
    RmsNormBackwardArgs args{.dy = r["d.y"], .h = c.residual ? r["h"] : r["x"], .w = r["w"], .rstd = r["rstd"],
                             .dh = r["d.x"], .dw = r["d.w"]};
    if (c.residual) args.dresidual = r["d.h"];
    if (c.dh_is_dy) args.dh = r["d.y"];
    if (c.dh_is_dresidual) args.dh = r["d.h"];
    RmsNormBackward(r.stream(), args, r.work());
    if (c.dh_is_dy || c.dh_is_dresidual) Copy(r.stream(), args.dh, r["d.x"]);
    if (c.residual) Copy(r.stream(), r["d.x"], r["d.residual"]);
  };
  op.reference = [c, eps](const OpValues& in, OpValues& out) {
    out["y"], out["h"], out["rstd"];
    for (int64_t t = 0; t < c.n_T; ++t) {
      std::vector<double> h;
      double squares = 0;
      for (int64_t d = 0; d < c.D; ++d) {
        const size_t i = static_cast<size_t>(t * c.D + d);
        h.push_back(in.at("x")[i] + (c.residual ? in.at("residual")[i] : 0));
        squares += h.back() * h.back();
      }
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(c.D) + eps);
      out["rstd"].push_back(rstd);
      for (size_t d = 0; d < h.size(); ++d) {
        out["h"].push_back(h[d]);
        out["y"].push_back(h[d] * rstd * in.at("w")[d]);
      }
    }
  };
  CheckOp(op);
}

TEST_CASE("rmsnorm: plain, strided, with a residual") {
  CheckNorm({.n_T = 5, .D = 19});
  CheckNorm({.n_T = 37, .D = 64, .padding = 6});
  CheckNorm({.n_T = 23, .D = 33, .residual = true});
  CheckNorm({.n_T = 1, .D = 3});
  CheckNorm({.n_T = 0, .D = 8});
}

TEST_CASE("rmsnorm: backward in place") {
  CheckNorm({.n_T = 37, .D = 40, .dh_is_dy = true});
  CheckNorm({.n_T = 37, .D = 40, .residual = true, .dh_is_dresidual = true});
}

TEST_CASE("rmsnorm: the weight gradient alone, and added to beta times the old one") {
  CpuFixture cpu;
  const Shape td{21, 9};
  const Tensor dy = cpu.Make(DType::kF64, td, RandomValues("dy", 189)), h = cpu.Make(DType::kF64, td, RandomValues("h", 189));
  const Tensor w = cpu.Make(DType::kF64, {9}, RandomValues("w", 9)), rstd = cpu.Make(DType::kF64, {21}, RandomValues("r", 21));
  const Tensor once = cpu.Make(DType::kF64, {9}, std::vector<double>(9, NAN)), twice = cpu.Make(DType::kF64, {9});
  RmsNormBackward(cpu.stream(), {.dy = dy, .h = h, .w = w, .rstd = rstd, .dw = once}, cpu.work());
  SetValues(twice, ValuesOf(once));
  RmsNormBackward(cpu.stream(), {.dy = dy, .h = h, .w = w, .rstd = rstd, .dw = twice, .beta_w = 0.5}, cpu.work());
  std::vector<double> expected = ValuesOf(once);
  for (double& x : expected) x *= 1.5;
  CHECK(RelativeL2(ValuesOf(twice), expected) < 1e-14);
  const Tensor no_tokens = cpu.Make(DType::kF64, {9}, std::vector<double>(9, NAN));
  RmsNormBackward(cpu.stream(), {.dy = cpu.Make(DType::kF64, {0, 9}), .h = cpu.Make(DType::kF64, {0, 9}), .w = w,
                                 .rstd = cpu.Make(DType::kF64, {0}), .dw = no_tokens}, cpu.work());
  CHECK(ValuesOf(no_tokens) == std::vector<double>(9, 0));
}

}  // namespace
}  // namespace yardmaster::testing
