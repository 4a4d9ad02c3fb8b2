#include "src/ops/pad_rows.h"

#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

struct Case {
  std::vector<double> offsets;
  int64_t rows, R, D;  // M, rows of the ragged side, width
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{0, 2, 2, 5}, 4, 9, 3},  // an expert without rows, room behind the last
      {{0, 7, 14}, 7, 14, 16},  // full
      {{0, 1}, 1, 1, 1},        // as weights: rows of one element
      {{0, 0, 0}, 5, 6, 4},     // no rows at all
      {{0, 13, 14, 40, 63}, 29, 70, 67}};
  return cases;
}

TEST_CASE("pad rows: each expert's rows, then zeros; unpad is the adjoint") {
  for (const Case& c : Cases()) {
    const auto L = static_cast<int64_t>(c.offsets.size()) - 1,
               used = static_cast<int64_t>(c.offsets.back());
    OpDeclaration op;
    op.name = "pad rows";
    op.bf16 = true;
    op.inputs = {
        {"ragged", {c.R, c.D}, RandomValues("ragged", used * c.D), true, DType::kF32, 0, used},
        {"offsets", {L + 1}, c.offsets, false, DType::kI64}};
    op.outputs = {{"padded", {L * c.rows, c.D}}};
    op.forward = [](const OpRun& r) {
      PadRows(r.stream(), {.ragged = r["ragged"], .offsets = r["offsets"], .padded = r["padded"]});
    };
    op.backward = [](const OpRun& r) {
      UnpadRows(r.stream(),
                {.ragged = r["d.ragged"], .offsets = r["offsets"], .padded = r["d.padded"]});
    };
    op.reference = [=](const OpValues& in, OpValues& out) {
      out["padded"].assign(static_cast<size_t>(L * c.rows * c.D), 0);
      for (int64_t l = 0; l < L; ++l) {
        const auto begin = static_cast<int64_t>(c.offsets[static_cast<size_t>(l)]);
        const auto end = static_cast<int64_t>(c.offsets[static_cast<size_t>(l + 1)]);
        for (int64_t i = 0; i < (end - begin) * c.D; ++i)
          out["padded"][static_cast<size_t>(l * c.rows * c.D + i)] =
              in.at("ragged")[static_cast<size_t>(begin * c.D + i)];
      }
    };
    CheckOp(op);
  }
}

TEST_CASE("padded offsets") {
  OpDeclaration op;
  op.name = "padded offsets";
  op.outputs = {{"offsets", {4}, false, DType::kI64}};
  op.forward = [](const OpRun& r) { PaddedOffsets(r.stream(), 5, r["offsets"]); };
  op.reference = [](const OpValues&, OpValues& out) { out["offsets"] = {0, 5, 10, 15}; };
  CheckOp(op);
}

TEST_CASE("pad rows: more rows than the capacity are a bug and are told, not cut") {
  CpuFixture cpu;
  const PadRowsArgs args{.ragged = cpu.Make(DType::kF32, {5, 2}),
                         .offsets = cpu.Make(DType::kI64, {3}, {0, 2, 5}),
                         .padded = cpu.Make(DType::kF32, {4, 2})};
  CHECK_THROWS(PadRows(cpu.stream(), args));
}

}  // namespace
}  // namespace yardmaster::testing
