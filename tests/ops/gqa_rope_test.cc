#include "src/ops/gqa_rope.h"

#include <cmath>
#include <complex>

#include "src/ops/elementwise.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

void CheckGqaRope(int64_t n_T, int64_t H, int64_t G, int64_t Q) {
  const int64_t max_positions = 11;
  std::vector<double> table, positions;
  for (int64_t p = 0; p < max_positions; ++p) {
    for (int64_t i = 0; i < Q / 2; ++i) {
      const double angle = static_cast<double>(p) / (1 + static_cast<double>(i)), magnitude = 1.2;  // as YaRN's
      table.push_back(magnitude * std::cos(angle)), table.push_back(magnitude * std::sin(angle));
    }
  }
  for (int64_t t = 0; t < n_T; ++t) positions.push_back(static_cast<double>(t * 3 % max_positions));
  OpDeclaration op;
  op.name = "gqa rope";
  op.inputs = {{"q", {n_T, H, Q}, RandomValues("q", n_T * H * Q)},
               {"k", {n_T, G, Q}, RandomValues("k", n_T * G * Q)},
               {"positions", {n_T}, positions, false, DType::kI32},
               {"table", {max_positions, Q / 2, 2}, table, false, DType::kF32, 0, -1, /*accum=*/true}};
  op.bf16 = true;
  op.outputs = {{"q_out", {n_T, H, Q}}, {"k_out", {n_T, G, Q}}};
  op.forward = [](const OpRun& r) {
    Copy(r.stream(), r["q"], r["q_out"]);
    Copy(r.stream(), r["k"], r["k_out"]);
    GqaRopeForward(r.stream(), {r["q_out"], r["k_out"], r["positions"], r["table"]});
  };
  op.backward = [](const OpRun& r) {
    Copy(r.stream(), r["d.q_out"], r["d.q"]);
    Copy(r.stream(), r["d.k_out"], r["d.k"]);
    GqaRopeBackward(r.stream(), {r["d.q"], r["d.k"], r["positions"], r["table"]});
  };
  op.reference = [=](const OpValues& in, OpValues& out) {
    for (const auto& [from, to, heads] : {std::tuple{"q", "q_out", H}, std::tuple{"k", "k_out", G}}) {
      const std::vector<double>& x = in.at(from);
      std::vector<double> y(x.size());
      for (int64_t row = 0; row < n_T * heads; ++row) {
        for (int64_t i = 0; i < Q / 2; ++i) {
          const auto pos = static_cast<int64_t>(positions[static_cast<size_t>(row / heads)]);
          const auto at = static_cast<size_t>(row * Q + i), other = at + static_cast<size_t>(Q / 2);
          const auto angle = static_cast<size_t>((pos * (Q / 2) + i) * 2);
          const std::complex<double> z =
              std::complex(x[at], x[other]) * std::complex(in.at("table")[angle], in.at("table")[angle + 1]);
          y[at] = z.real();
          y[other] = z.imag();
        }
      }
      out[to] = y;
    }
  };
  CheckOp(op);
}

TEST_CASE("gqa rope: halves are rotated as complex numbers, by position") {
  CheckGqaRope(7, 4, 2, 6);
  CheckGqaRope(40, 3, 1, 2);
  CheckGqaRope(5, 2, 2, 16);
  CheckGqaRope(0, 2, 1, 4);
}

TEST_CASE("gqa rope: a position beyond the table is refused") {
  CpuFixture cpu;
  const auto make = [&](const Shape& s) { return cpu.Make(DType::kF32, s); };
  CHECK_THROWS_AS(GqaRopeForward(cpu.stream(), {make({1, 1, 2}), make({1, 1, 2}), cpu.Make(DType::kI32, {1}, {5}), make({5, 1, 2})}),
                  InternalError);
}

}  // namespace
}  // namespace yardmaster::testing
