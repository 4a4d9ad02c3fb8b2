#include "src/ops/swiglu.h"

#include <cmath>

#include "src/ops/cpu/math.h"
#include "src/ops/elementwise.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

void CheckSwiglu(int64_t R, int64_t F, bool weighted, int64_t rows, bool in_place) {
  const int64_t used = rows >= 0 ? rows : R;
  OpDeclaration op;
  op.name = "swiglu";
  op.inputs = {{"gate_up", {R, 2 * F}, RandomValues("gate_up", used * 2 * F, -4, 4), true, DType::kF32, 0, rows}};
  if (weighted) op.inputs.push_back({"w", {R, 1}, RandomValues("w", used), true, DType::kF32, 0, rows, /*accum=*/true});
  if (rows >= 0) op.inputs.push_back({"rows", {1}, {static_cast<double>(rows)}, false, DType::kI64});
  op.outputs = {{"act", {R, F}, true, DType::kF32, 0, rows}};
  op.bf16 = true;
  op.forward = [=](const OpRun& r) {
    SwigluArgs args{.gate_up = r["gate_up"], .act = r["act"]};
    if (weighted) args.w = r["w"].Reshape({R});
    if (rows >= 0) args.num_rows = r["rows"];
    SwigluForward(r.stream(), args);
  };
  op.backward = [=](const OpRun& r) {
    if (in_place) Copy(r.stream(), r["gate_up"].Slice(0, used), r["d.gate_up"].Slice(0, used));
    const std::vector<double> act_before = r.Values(r["act"]);
    SwigluBackwardArgs args{.dact = r["d.act"], .gate_up = in_place ? r["d.gate_up"] : r["gate_up"],
                            .dgate_up = r["d.gate_up"], .act = r["act"]};
    if (weighted) args.w = r["w"].Reshape({R}), args.dw = r["d.w"].Reshape({R});
    if (rows >= 0) args.num_rows = r["rows"];
    SwigluBackward(r.stream(), args);
    const std::vector<double> act_again = r.Values(r["act"]);  // recomputed to the same bits
    for (int64_t i = 0; i < used * F; ++i) CHECK(act_again[static_cast<size_t>(i)] == act_before[static_cast<size_t>(i)]);
  };
  op.reference = [=](const OpValues& in, OpValues& out) {
    out["act"];
    for (int64_t r = 0; r < used; ++r) {
      for (int64_t f = 0; f < F; ++f) {
        const double g = in.at("gate_up")[static_cast<size_t>(r * 2 * F + f)];
        const double u = in.at("gate_up")[static_cast<size_t>(r * 2 * F + F + f)];
        const double w = weighted ? in.at("w")[static_cast<size_t>(r)] : 1;
        out["act"].push_back(w * g / (1 + std::exp(-g)) * u);
      }
    }
  };
  CheckOp(op);
}

TEST_CASE("swiglu: weighted and not, in place and not") {
  for (const bool weighted : {false, true}) {
    for (const bool in_place : {false, true}) {
      CheckSwiglu(13, 70, weighted, -1, in_place);
      CheckSwiglu(40, 129, weighted, 29, in_place);
    }
  }
}

TEST_CASE("swiglu: no rows, one row, all rows in use") {
  CheckSwiglu(4, 5, true, 0, false);
  CheckSwiglu(4, 5, true, 1, true);
  CheckSwiglu(4, 5, true, 4, false);
}

TEST_CASE("exp of the cpu ops: within 2 ulp of the library's, limits included") {
  double worst = 0;
  for (int i = -1040000; i <= 890000; ++i) {
    const float x = static_cast<float>(i) * 1e-4f;
    const double exact = std::exp(static_cast<double>(x));
    const float got = cpu::Exp(x);
    if (exact > std::numeric_limits<float>::max()) {
      if (!std::isinf(got)) worst = INFINITY;
      continue;
    }
    const float nearest = static_cast<float>(exact);
    const double ulp = static_cast<double>(std::nextafter(nearest, INFINITY)) - nearest;
    worst = std::max(worst, std::fabs(got - exact) / ulp);
  }
  CHECK(worst < 2);
  CHECK(cpu::Exp(0.0f) == 1.0f);
  CHECK(cpu::Exp(-INFINITY) == 0.0f);
  CHECK(cpu::Exp(-1e30f) == 0.0f);
  CHECK(std::isinf(cpu::Exp(INFINITY)));
  CHECK(std::isnan(cpu::Exp(NAN)));
  CHECK(std::isnan(cpu::Exp(-NAN)));
}

}  // namespace
}  // namespace yardmaster::testing
