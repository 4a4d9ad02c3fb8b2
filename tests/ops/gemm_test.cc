#include "src/ops/gemm.h"

#include <cmath>

#include "src/base/strings.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

struct GemmCase {
  int64_t m, n, k;
  bool trans_a = false, trans_b = false;
  double alpha = 1, beta = 0;
  bool separate_c = false;
  int64_t padding = 0;
};

void CheckGemm(const GemmCase& g) {
  const Shape a = g.trans_a ? Shape{g.k, g.m} : Shape{g.m, g.k}, b = g.trans_b ? Shape{g.n, g.k} : Shape{g.k, g.n};
  OpDeclaration op;
  op.name = StrCat("gemm ", g.m, "x", g.n, "x", g.k, g.trans_a ? " ta" : "", g.trans_b ? " tb" : "", " beta ", g.beta);
  op.inputs = {{"a", a, RandomValues("a", g.m * g.k), true, DType::kF32, g.padding},
               {"b", b, RandomValues("b", g.k * g.n), true, DType::kF32, g.padding}};
  if (g.beta != 0) op.inputs.push_back({"c", {g.m, g.n}, RandomValues("c", g.m * g.n), true, DType::kF32, g.padding});
  op.bf16 = true;
  op.outputs = {{"d", {g.m, g.n}, true, DType::kF32, g.padding}};
  op.forward = [g](const OpRun& r) {
    GemmArgs args{.a = r["a"], .b = r["b"], .d = r["d"], .trans_a = g.trans_a, .trans_b = g.trans_b, .alpha = g.alpha,
                  .beta = g.beta};
    if (g.separate_c) args.c = r["c"];
    if (g.beta != 0 && !g.separate_c) r.Set(r["d"], r.Values(r["c"]));
    Gemm(r.stream(), args);
  };
  // A linear layer's gradients, with op(A) and op(B) turned as needed.
  op.backward = [g](const OpRun& r) {
    const Tensor dd = r["d.d"];
    if (g.trans_a) {
      Gemm(r.stream(), {.a = r["b"], .b = dd, .d = r["d.a"], .trans_a = g.trans_b, .trans_b = true, .alpha = g.alpha});
    } else {
      Gemm(r.stream(), {.a = dd, .b = r["b"], .d = r["d.a"], .trans_b = !g.trans_b, .alpha = g.alpha});
    }
    if (g.trans_b) {
      Gemm(r.stream(), {.a = dd, .b = r["a"], .d = r["d.b"], .trans_a = true, .trans_b = g.trans_a, .alpha = g.alpha});
    } else {
      Gemm(r.stream(), {.a = r["a"], .b = dd, .d = r["d.b"], .trans_a = !g.trans_a, .alpha = g.alpha});
    }
    if (g.beta != 0) Gemm(r.stream(), {.a = r["a"], .b = r["b"], .d = r["d.c"], .c = dd, .trans_a = g.trans_a,
                                       .trans_b = g.trans_b, .alpha = 0, .beta = g.beta});
  };
  op.reference = [g](const OpValues& in, OpValues& out) {
    const auto& a = in.at("a");
    const auto& b = in.at("b");
    for (int64_t i = 0; i < g.m; ++i) {
      for (int64_t j = 0; j < g.n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < g.k; ++p) {
          sum += a[static_cast<size_t>(g.trans_a ? p * g.m + i : i * g.k + p)] *
                 b[static_cast<size_t>(g.trans_b ? j * g.k + p : p * g.n + j)];
        }
        const double c = g.beta != 0 ? g.beta * in.at("c")[static_cast<size_t>(i * g.n + j)] : 0;
        out["d"].push_back(g.alpha * sum + c);
      }
    }
  };
  CheckOp(op);
}

TEST_CASE("gemm: every transposition, odd shapes") {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      CheckGemm({.m = 7, .n = 5, .k = 3, .trans_a = ta, .trans_b = tb});
      CheckGemm({.m = 67, .n = 33, .k = 129, .trans_a = ta, .trans_b = tb, .padding = 3});
    }
  }
}

TEST_CASE("gemm: alpha, beta, c in place and apart") {
  CheckGemm({.m = 13, .n = 11, .k = 17, .alpha = 0.5, .beta = 2});
  CheckGemm({.m = 13, .n = 11, .k = 17, .trans_b = true, .alpha = -1, .beta = 0.25, .separate_c = true, .padding = 2});
}

TEST_CASE("gemm: shapes that are split over threads") {
  CheckGemm({.m = 301, .n = 64, .k = 96, .trans_b = true});
  CheckGemm({.m = 64, .n = 301, .k = 96, .trans_a = true});
  CheckGemm({.m = 300, .n = 40, .k = 96, .beta = 1, .separate_c = true, .padding = 5});
}

TEST_CASE("gemm: one of M, N, K is 0 or 1") {
  CheckGemm({.m = 1, .n = 1, .k = 1});
  CheckGemm({.m = 1, .n = 9, .k = 5, .trans_b = true});
  CheckGemm({.m = 9, .n = 1, .k = 5});
  CpuFixture cpu;
  for (const DType type : {DType::kF32, DType::kF64}) {
    const Tensor d = cpu.Make(type, {2, 2}, {1, 2, 3, 4});
    Gemm(cpu.stream(), {.a = cpu.Make(type, {2, 0}), .b = cpu.Make(type, {0, 2}), .d = d, .beta = 2});
    CHECK(ValuesOf(d) == std::vector<double>{2, 4, 6, 8});
    SetValues(d, {NAN, NAN, NAN, NAN});
    Gemm(cpu.stream(), {.a = cpu.Make(type, {2, 0}), .b = cpu.Make(type, {0, 2}), .d = d});
    CHECK(ValuesOf(d) == std::vector<double>{0, 0, 0, 0});
    Gemm(cpu.stream(), {.a = cpu.Make(type, {0, 3}), .b = cpu.Make(type, {3, 2}), .d = cpu.Make(type, {0, 2})});
  }
}

TEST_CASE("gemm: a wrong shape or type names the argument and both values") {
  CpuFixture cpu;
  const Tensor a = cpu.Make(DType::kF32, {2, 3}), b = cpu.Make(DType::kF32, {3, 4}), d = cpu.Make(DType::kF32, {2, 4});
  const auto message_of = [&](const GemmArgs& args) -> std::string {
    try {
      Gemm(cpu.stream(), args);
    } catch (const InternalError& e) {
      return e.what();
    }
    return "";
  };
  CHECK(message_of({.a = a, .b = b, .d = d, .trans_b = true}).find("b is [3, 4], not [4, 3]") != std::string::npos);
  CHECK(message_of({.a = a, .b = cpu.Make(DType::kF64, {3, 4}), .d = d}).find("b is F64, not F32") != std::string::npos);
}

TEST_CASE("gemm: the dry device checks shapes and needs no data") {
  const auto dry = MakeDryDevice();
  Arena arena("a", dry.get());
  const auto make = [&](const Shape& s) { return arena.Allocate("t", DType::kBF16, s); };
  CHECK_THROWS_AS(Gemm(dry.get(), {.a = make({2, 3}), .b = make({3, 4}), .d = make({2, 4})}), InternalError);
  const auto make32 = [&](const Shape& s) { return arena.Allocate("t", DType::kF32, s); };
  CHECK_NOTHROW(Gemm(dry.get(), {.a = make32({2, 3}), .b = make32({3, 4}), .d = make32({2, 4})}));
  CHECK_THROWS_AS(Gemm(dry.get(), {.a = make32({2, 3}), .b = make32({4, 3}), .d = make32({2, 4})}), InternalError);
}

}  // namespace
}  // namespace yardmaster::testing
