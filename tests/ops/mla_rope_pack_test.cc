#include "src/ops/mla_rope_pack.h"

#include <cmath>

#include "src/ops/elementwise.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

void CheckMla(int64_t n_T, int64_t H, int64_t N, int64_t P, int64_t V, bool in_place, int64_t padding) {
  const int64_t Q = N + P, max_positions = 9;
  std::vector<double> table, positions;
  for (int64_t p = 0; p < max_positions; ++p) {
    for (int64_t i = 0; i < P / 2; ++i) {
      const double angle = static_cast<double>(p) / (1 + static_cast<double>(i)), magnitude = 1.1;  // as YaRN's
      table.push_back(magnitude * std::cos(angle)), table.push_back(magnitude * std::sin(angle));
    }
  }
  for (int64_t t = 0; t < n_T; ++t) positions.push_back(static_cast<double>(t * 4 % max_positions));
  OpDeclaration op;
  op.name = "mla rope pack";
  op.inputs = {{"q", {n_T, H, Q}, RandomValues("q", n_T * H * Q)},
               {"kv", {n_T, H, N + V}, RandomValues("kv", n_T * H * (N + V))},
               {"k_rope", {n_T, P}, RandomValues("k_rope", n_T * P), true, DType::kF32, padding},
               {"positions", {n_T}, positions, false, DType::kI32},
               {"table", {max_positions, P / 2, 2}, table, false, DType::kF32, 0, -1, /*accum=*/true}};
  op.bf16 = true;
  op.outputs = {{"q_out", {n_T, H, Q}}, {"k_out", {n_T, H, Q}}, {"v_out", {n_T, H, V}}};
  op.forward = [in_place](const OpRun& r) {
    if (in_place) Copy(r.stream(), r["q"], r["q_out"]);
    MlaRopePackForward(r.stream(), {.q = in_place ? r["q_out"] : r["q"], .kv = r["kv"], .k_rope = r["k_rope"],
                                    .positions = r["positions"], .table = r["table"], .q_out = r["q_out"],
                                    .k_out = r["k_out"], .v_out = r["v_out"]});
  };
  op.backward = [in_place](const OpRun& r) {
    if (in_place) Copy(r.stream(), r["d.q_out"], r["d.q"]);
    MlaRopePackBackward(r.stream(), {.dq_out = in_place ? r["d.q"] : r["d.q_out"], .dk_out = r["d.k_out"], .dv_out = r["d.v_out"],
                                     .positions = r["positions"], .table = r["table"], .dq = r["d.q"], .dkv = r["d.kv"],
                                     .dk_rope = r["d.k_rope"]});
  };
  op.reference = [=](const OpValues& in, OpValues& out) {
    out["q_out"], out["k_out"], out["v_out"];
    // Coordinate d of a vector whose last P are rotated, as complex numbers by pairs.
    const auto rotated = [&](const std::vector<double>& x, int64_t begin, int64_t d, int64_t t) {
      const int64_t i = d / 2, p = static_cast<int64_t>(positions[static_cast<size_t>(t)]);
      const double a = x[static_cast<size_t>(begin + 2 * i)], b = x[static_cast<size_t>(begin + 2 * i + 1)];
      const double c = in.at("table")[static_cast<size_t>((p * (P / 2) + i) * 2)], s = in.at("table")[static_cast<size_t>((p * (P / 2) + i) * 2 + 1)];
      return d % 2 == 0 ? a * c - b * s : a * s + b * c;
    };
    for (int64_t t = 0; t < n_T; ++t) {
      for (int64_t h = 0; h < H; ++h) {
        const int64_t q = (t * H + h) * Q, kv = (t * H + h) * (N + V);
        for (int64_t d = 0; d < N; ++d) {
          out["q_out"].push_back(in.at("q")[static_cast<size_t>(q + d)]);
          out["k_out"].push_back(in.at("kv")[static_cast<size_t>(kv + d)]);
        }
        for (int64_t d = 0; d < P; ++d) {
          out["q_out"].push_back(rotated(in.at("q"), q + N, d, t));
          out["k_out"].push_back(rotated(in.at("k_rope"), t * P, d, t));
        }
        for (int64_t d = 0; d < V; ++d) out["v_out"].push_back(in.at("kv")[static_cast<size_t>(kv + N + d)]);
      }
    }
  };
  CheckOp(op);
}

TEST_CASE("mla rope pack: in place and not, strided shared key, other sizes of v") {
  for (const bool in_place : {false, true}) {
    CheckMla(7, 3, 5, 4, 6, in_place, 0);
    CheckMla(40, 2, 8, 2, 3, in_place, 8);
    CheckMla(3, 1, 0, 4, 2, in_place, 1);  // all of q is rotated
    CheckMla(0, 2, 4, 2, 4, in_place, 0);
  }
}

TEST_CASE("mla rope pack: a position beyond the table is refused") {
  CpuFixture cpu;
  const auto make = [&](const Shape& s) { return cpu.Make(DType::kF32, s); };
  CHECK_THROWS_AS(MlaRopePackForward(cpu.stream(), {.q = make({1, 1, 2}), .kv = make({1, 1, 1}), .k_rope = make({1, 2}),
                                                    .positions = cpu.Make(DType::kI32, {1}, {5}), .table = make({5, 1, 2}),
                                                    .q_out = make({1, 1, 2}), .k_out = make({1, 1, 2}), .v_out = make({1, 1, 1})}),
                  InternalError);
}

}  // namespace
}  // namespace yardmaster::testing
