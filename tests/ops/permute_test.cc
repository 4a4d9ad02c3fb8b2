#include "src/ops/permute.h"

#include <cmath>

#include "src/ops/elementwise.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

struct Case {
  int64_t E, expert_begin, L, K, R;
  std::vector<double> idx;
};

// Rows by plain search: for each expert its tokens in order.
std::vector<int64_t> SourceOf(const Case& c) {
  std::vector<int64_t> source;
  for (int64_t l = 0; l < c.L; ++l) {
    for (size_t p = 0; p < c.idx.size(); ++p) {
      if (static_cast<int64_t>(c.idx[p]) == c.expert_begin + l) source.push_back(static_cast<int64_t>(p));
    }
  }
  return source;
}

std::vector<Case> Cases() {
  std::vector<double> many;
  for (int t = 0; t < 101; ++t) many.push_back(t * t % 7), many.push_back(7 + t % 3);
  return {
      {4, 0, 4, 2, 8, {0, 1, 2, 3, 0, 3, 0, 2}},   // exactly full
      {4, 0, 4, 2, 11, {1, 3, 1, 3, 1, 3}},        // experts without tokens, rows of nobody
      {4, 2, 2, 2, 5, {0, 2, 1, 3, 2, 3}},         // some pairs are not local
      {4, 0, 2, 2, 4, {2, 3, 2, 3}},               // none is
      {10, 0, 10, 2, 202, many},
      {3, 0, 3, 1, 4, {2}},
      {3, 0, 3, 1, 4, {}},
      {2, 0, 2, 1, 9, {1, 1, 1, 1, 1, 1, 1}},      // one expert takes all
  };
}

// Row by row, and token by token.
std::vector<std::pair<Case, bool>> CasesBothWays() {
  std::vector<std::pair<Case, bool>> cases;
  for (const Case& c : Cases()) cases.insert(cases.end(), {{c, false}, {c, true}});
  return cases;
}

struct Plan {
  Tensor offsets, slot, source, overflow;
};

// `make` gives a tensor of a type and shape, zeroed.
template <class Make>
Plan MakePlan(const Stream& stream, const Case& c, const Tensor& idx, Arena& work, const Make& make) {
  Plan plan{make(DType::kI64, Shape{c.L + 1}), make(DType::kI64, idx.shape()), make(DType::kI64, Shape{c.R}),
            make(DType::kI32, Shape{1})};
  PermutePlan(stream, {.idx = idx, .expert_begin = c.expert_begin, .offsets = plan.offsets, .slot = plan.slot,
                       .source = plan.source}, plan.overflow, work);
  return plan;
}

Plan MakePlan(CpuFixture& cpu, const Case& c, const Tensor& idx) {
  return MakePlan(cpu.stream(), c, idx, cpu.work(), [&](DType type, const Shape& shape) { return cpu.Make(type, shape); });
}

Plan MakePlan(const OpRun& r, const Case& c) {
  return MakePlan(r.stream(), c, r["idx"], r.work(), [&](DType type, const Shape& shape) {
    return r.Scratch(type, shape, std::vector<double>(static_cast<size_t>(shape.elements())));
  });
}

TEST_CASE("permute plan: rows of an expert are its tokens in order") {
  CpuFixture cpu;
  for (const Case& c : Cases()) {
    const int64_t n_T = static_cast<int64_t>(c.idx.size()) / c.K;
    const Tensor idx = cpu.Make(DType::kI32, {n_T, c.K}, c.idx);
    const Plan plan = MakePlan(cpu, c, idx);
    const std::vector<int64_t> source = SourceOf(c);
    std::vector<int64_t> slot(c.idx.size(), -1);
    for (size_t r = 0; r < source.size(); ++r) {
      CHECK(plan.source.as<int64_t>()[r] == source[r]);
      slot[static_cast<size_t>(source[r])] = static_cast<int64_t>(r);
    }
    for (size_t p = 0; p < slot.size(); ++p) CHECK(plan.slot.as<int64_t>()[p] == slot[p]);
    CHECK(plan.offsets.as<int64_t>()[0] == 0);
    CHECK(plan.offsets.as<int64_t>()[c.L] == static_cast<int64_t>(source.size()));
    for (int64_t l = 0; l < c.L; ++l) {
      for (int64_t r = plan.offsets.as<int64_t>()[l]; r < plan.offsets.as<int64_t>()[l + 1]; ++r) {
        CHECK(static_cast<int64_t>(c.idx[static_cast<size_t>(source[static_cast<size_t>(r)])]) == c.expert_begin + l);
      }
    }
    CHECK(plan.overflow.as<int32_t>()[0] == 0);
  }
}

TEST_CASE("permute plan: more rows than fit are reported and the rest stays consistent") {
  CpuFixture cpu;
  const Case c{3, 0, 3, 2, 4, {0, 1, 0, 2, 1, 2}};
  const Tensor idx = cpu.Make(DType::kI32, {3, 2}, c.idx);
  const Plan plan = MakePlan(cpu, c, idx);
  CHECK(ValuesOf(plan.offsets) == std::vector<double>{0, 2, 4, 4});
  CHECK(ValuesOf(plan.slot) == std::vector<double>{0, 2, 1, -1, 3, -1});
  CHECK(ValuesOf(plan.source) == std::vector<double>{0, 2, 1, 4});
  CHECK(plan.overflow.as<int32_t>()[0] == 1);
  // sticky: a plan that fits does not clear it
  PermutePlan(cpu.stream(), {.idx = idx, .offsets = cpu.Make(DType::kI64, {4}), .slot = cpu.Make(DType::kI64, {3, 2}),
                             .source = cpu.Make(DType::kI64, {6})}, plan.overflow, cpu.work());
  CHECK(plan.overflow.as<int32_t>()[0] == 1);
}

TEST_CASE("permute: rows and weights move, and unpermute is the adjoint") {
  const int64_t D = 5;
  for (const auto& [c, by_token] : CasesBothWays()) {
    const int64_t n_T = static_cast<int64_t>(c.idx.size()) / c.K;
    const std::vector<int64_t> source = SourceOf(c);
    const int64_t rows = static_cast<int64_t>(source.size());
    OpDeclaration op;
    op.name = "permute";
    op.inputs = {{"x", {n_T, D}, RandomValues("x", n_T * D)}, {"w", {n_T, c.K}, RandomValues("w", n_T * c.K), true, DType::kF32, 0, -1, /*accum=*/true},
                 {"idx", {n_T, c.K}, c.idx, false, DType::kI32}};
    op.outputs = {{"x_RD", {c.R, D}, true, DType::kF32, 0, rows}, {"w_R", {c.R, 1}, true, DType::kF32, 0, rows, /*accum=*/true}};
    op.bf16 = true;
    op.forward = [c = c, by_token = by_token](const OpRun& r) {
      const Plan plan = MakePlan(r, c);
      Permute(r.stream(), {.x_TD = r["x"], .w_TK = r["w"], .source = plan.source, .offsets = plan.offsets,
                           .x_RD = r["x_RD"], .w_R = r["w_R"].Reshape({c.R}), .top_k = c.K,
                           .slot = by_token ? plan.slot : Tensor()});
    };
    op.backward = [c = c](const OpRun& r) {
      const Plan plan = MakePlan(r, c);
      Unpermute(r.stream(), {.y_RD = r["d.x_RD"], .slot = plan.slot, .dw_R = r["d.w_R"].Reshape({c.R}),
                             .y_TD = r["d.x"], .dw_TK = r["d.w"]});
    };
    op.reference = [=, c = c](const OpValues& in, OpValues& out) {
      out["x_RD"], out["w_R"];
      for (const int64_t pair : source) {
        for (int64_t d = 0; d < D; ++d) out["x_RD"].push_back(in.at("x")[static_cast<size_t>(pair / c.K * D + d)]);
        out["w_R"].push_back(in.at("w")[static_cast<size_t>(pair)]);
      }
    };
    CheckOp(op);
  }
}

TEST_CASE("unpermute: sums over k with residual and addend, in place, and permute is the adjoint") {
  const int64_t D = 67;
  for (const Case& c : Cases()) {
    for (const int in_place : {0, 1, 2}) {  // y apart, y is residual, y is addend
      const int64_t n_T = static_cast<int64_t>(c.idx.size()) / c.K;
      const std::vector<int64_t> source = SourceOf(c);
      const int64_t rows = static_cast<int64_t>(source.size());
      OpDeclaration op;
      op.name = "unpermute";
      op.inputs = {{"y_RD", {c.R, D}, RandomValues("y", rows * D), true, DType::kF32, 0, rows},
                   {"residual", {n_T, D}, RandomValues("residual", n_T * D)},
                   {"addend", {n_T, D}, RandomValues("addend", n_T * D)},
                   {"idx", {n_T, c.K}, c.idx, false, DType::kI32}};
      op.outputs = {{"y", {n_T, D}}};
      op.bf16 = true;
      op.forward = [c, in_place](const OpRun& r) {
        const Plan plan = MakePlan(r, c);
        UnpermuteArgs args{.y_RD = r["y_RD"], .slot = plan.slot, .residual = r["residual"], .addend = r["addend"], .y_TD = r["y"]};
        if (in_place) {
          Tensor& same = in_place == 1 ? args.residual : args.addend;
          Copy(r.stream(), same, r["y"]);
          same = r["y"];
        }
        Unpermute(r.stream(), args);
      };
      op.backward = [c](const OpRun& r) {
        const Plan plan = MakePlan(r, c);
        Permute(r.stream(), {.x_TD = r["d.y"], .source = plan.source, .offsets = plan.offsets, .x_RD = r["d.y_RD"],
                             .top_k = c.K, .slot = plan.slot});
        Copy(r.stream(), r["d.y"], r["d.residual"]);
        Copy(r.stream(), r["d.y"], r["d.addend"]);
      };
      op.reference = [=](const OpValues& in, OpValues& out) {
        out["y"].resize(static_cast<size_t>(n_T * D));
        for (size_t i = 0; i < out["y"].size(); ++i) out["y"][i] = in.at("residual")[i] + in.at("addend")[i];
        for (size_t r = 0; r < source.size(); ++r) {
          for (int64_t d = 0; d < D; ++d) {
            out["y"][static_cast<size_t>(source[r] / c.K * D + d)] += in.at("y_RD")[r * static_cast<size_t>(D) + static_cast<size_t>(d)];
          }
        }
      };
      CheckOp(op);
    }
  }
}

TEST_CASE("unpermute: adds in ascending k, after residual and addend") {
  CpuFixture cpu;
  const Tensor y = cpu.Make(DType::kF32, {1, 1});
  Unpermute(cpu.stream(), {.y_RD = cpu.Make(DType::kF32, {3, 1}, {1, -1e8, 1e8}), .slot = cpu.Make(DType::kI64, {1, 3}, {0, 2, 1}),
                           .y_TD = y});
  CHECK(ValuesOf(y)[0] == (1.0f + 1e8f) + -1e8f);
}

}  // namespace
}  // namespace yardmaster::testing
