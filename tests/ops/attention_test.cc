#include "src/ops/attention.h"

#include <cmath>

#include "src/base/strings.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

struct AttentionCase {
  int64_t B, S, H, G, Q, V;
  std::vector<double> document_start = {};
};

void CheckAttention(const AttentionCase& c) {
  const double scale = 0.7;
  OpDeclaration op;
  op.name = StrCat("attention S ", c.S, " H ", c.H, " G ", c.G, c.document_start.empty() ? "" : " documents");
  op.inputs = {{"q", {c.B, c.S, c.H, c.Q}, RandomValues("q", c.B * c.S * c.H * c.Q)},
               {"k", {c.B, c.S, c.G, c.Q}, RandomValues("k", c.B * c.S * c.G * c.Q)},
               {"v", {c.B, c.S, c.G, c.V}, RandomValues("v", c.B * c.S * c.G * c.V)}};
  const bool documents = !c.document_start.empty();
  if (documents) op.inputs.push_back({"start", {c.B, c.S}, c.document_start, false, DType::kI32});
  op.outputs = {{"o", {c.B, c.S, c.H, c.V}}, {"lse", {c.B, c.H, c.S}, false, DType::kF32, 0, -1, /*accum=*/true}};
  op.bf16 = c.S > 1;  // at one position dq and dk are 0, and a BF16 o leaves nothing but its rounding
  op.rms_floor = c.S > 1 ? 0 : 1e-3;
  const auto args_of = [=](const OpRun& r) {
    AttentionArgs args{.q = r["q"], .k = r["k"], .v = r["v"], .scale = scale, .o = r["o"], .lse = r["lse"]};
    if (documents) args.document_start = r["start"];
    return args;
  };
  op.forward = [=](const OpRun& r) { AttentionForward(r.stream(), args_of(r), r.work()); };
  op.backward = [=](const OpRun& r) {
    AttentionBackward(r.stream(), {.forward = args_of(r), .do_ = r["d.o"], .dq = r["d.q"], .dk = r["d.k"], .dv = r["d.v"]}, r.work());
  };
  op.reference = [=](const OpValues& in, OpValues& out) {
    out["o"].resize(static_cast<size_t>(c.B * c.S * c.H * c.V));
    out["lse"].resize(static_cast<size_t>(c.B * c.H * c.S));
    for (int64_t b = 0; b < c.B; ++b) {
      for (int64_t h = 0; h < c.H; ++h) {
        const int64_t g = h / (c.H / c.G);
        for (int64_t i = 0; i < c.S; ++i) {
          const int64_t first = documents ? static_cast<int64_t>(c.document_start[static_cast<size_t>(b * c.S + i)]) : 0;
          double sum = 0;
          std::vector<double> o(static_cast<size_t>(c.V));
          for (int64_t j = first; j <= i; ++j) {
            double dot = 0;
            for (int64_t d = 0; d < c.Q; ++d) {
              dot += in.at("q")[static_cast<size_t>(((b * c.S + i) * c.H + h) * c.Q + d)] *
                     in.at("k")[static_cast<size_t>(((b * c.S + j) * c.G + g) * c.Q + d)];
            }
            const double e = std::exp(scale * dot);
            sum += e;
            for (int64_t d = 0; d < c.V; ++d) {
              o[static_cast<size_t>(d)] += e * in.at("v")[static_cast<size_t>(((b * c.S + j) * c.G + g) * c.V + d)];
            }
          }
          out["lse"][static_cast<size_t>((b * c.H + h) * c.S + i)] = std::log(sum);
          for (int64_t d = 0; d < c.V; ++d) {
            out["o"][static_cast<size_t>(((b * c.S + i) * c.H + h) * c.V + d)] = o[static_cast<size_t>(d)] / sum;
          }
        }
      }
    }
  };
  CheckOp(op);
}

TEST_CASE("attention: one position, odd sizes, several blocks of rows") {
  CheckAttention({.B = 1, .S = 1, .H = 1, .G = 1, .Q = 2, .V = 3});
  CheckAttention({.B = 2, .S = 13, .H = 3, .G = 3, .Q = 5, .V = 4});
  CheckAttention({.B = 1, .S = 64, .H = 1, .G = 1, .Q = 8, .V = 8});
  CheckAttention({.B = 1, .S = 131, .H = 2, .G = 2, .Q = 6, .V = 10});
  CheckAttention({.B = 0, .S = 5, .H = 2, .G = 2, .Q = 3, .V = 3});
}

TEST_CASE("attention: query heads that share keys") {
  CheckAttention({.B = 2, .S = 70, .H = 6, .G = 2, .Q = 4, .V = 3});
  CheckAttention({.B = 1, .S = 17, .H = 4, .G = 1, .Q = 4, .V = 3});
}

TEST_CASE("attention: documents are kept apart") {
  std::vector<double> start;
  for (int i = 0; i < 150; ++i) start.push_back(i < 3 ? 0 : i < 70 ? 3 : i == 70 ? 70 : 71);
  for (int i = 0; i < 150; ++i) start.push_back(i < 100 ? 0 : 100);
  CheckAttention({.B = 2, .S = 150, .H = 2, .G = 2, .Q = 4, .V = 5, .document_start = start});
}

TEST_CASE("attention: scores of hundreds neither overflow nor lose the sum") {
  CpuFixture cpu;
  const Tensor q = cpu.Make(DType::kF32, {1, 2, 1, 1}, {300, 300}), k = cpu.Make(DType::kF32, {1, 2, 1, 1}, {1, -1});
  const Tensor v = cpu.Make(DType::kF32, {1, 2, 1, 1}, {5, 7}), o = cpu.Make(DType::kF32, {1, 2, 1, 1});
  const Tensor lse = cpu.Make(DType::kF32, {1, 1, 2});
  AttentionForward(cpu.stream(), {.q = q, .k = k, .v = v, .o = o, .lse = lse}, cpu.work());
  CHECK(ValuesOf(o) == std::vector<double>{5, 5});
  CHECK(ValuesOf(lse) == std::vector<double>{300, 300});
}

TEST_CASE("attention: the planned workspace is the used one") {
  const auto dry = MakeDryDevice();
  Arena planned("work", dry.get()), tensors("tensors", dry.get());
  const Shape shape{2, 40, 4, 8};
  const auto make = [&](const Shape& s) { return tensors.Allocate("t", DType::kF32, s); };
  const Tensor t = make(shape), lse = make({2, 4, 40});
  const AttentionArgs args{.q = t, .k = t, .v = t, .o = t, .lse = lse};
  AttentionBackward(dry.get(), {.forward = args, .do_ = t, .dq = t, .dk = t, .dv = t}, planned);
  CpuFixture cpu;
  const auto real = [&](const Shape& s) { return cpu.Make(DType::kF32, s); };
  const AttentionArgs real_args{.q = real(shape), .k = real(shape), .v = real(shape), .o = real(shape), .lse = real({2, 4, 40})};
  AttentionBackward(cpu.stream(), {.forward = real_args, .do_ = real(shape), .dq = real(shape), .dk = real(shape), .dv = real(shape)},
                    cpu.work());
  CHECK(planned.high_water() > 0);
  CHECK(planned.high_water() == cpu.work().high_water());
}

}  // namespace
}  // namespace yardmaster::testing
