#include "src/ops/linear_cross_entropy.h"

#include <cmath>

#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

void CheckLoss(int64_t D, int64_t V, const std::vector<double>& targets, int64_t chunk) {
  const int64_t n_T = static_cast<int64_t>(targets.size());
  OpDeclaration op;
  op.name = "linear cross-entropy";
  op.inputs = {{"x", {n_T, D}, RandomValues("x", n_T * D)}, {"head", {V, D}, RandomValues("head", V * D), true, DType::kF32, 0, -1, false, /*main_gradient=*/true},
               {"targets", {n_T}, targets, false, DType::kI32}};
  op.bf16 = true;
  op.outputs = {{"loss", {1}, true, DType::kF32, 0, -1, /*accum=*/true}, {"logits", {n_T, V}, false}, {"valid", {1}, false, DType::kI64}};
  op.forward = [=](const OpRun& r) {
    const Tensor loss = r.Scratch(DType::kF64, {1}, {0});
    r.Set(r["valid"], {0});
    LinearCrossEntropy(r.stream(), {.x = r["x"], .head = r["head"], .targets = r["targets"], .loss_sum = loss,
                                    .valid = r["valid"], .logits = r["logits"], .chunk_tokens = chunk}, r.work());
    r.Set(r["loss"], r.Values(loss));
  };
  op.backward = [=](const OpRun& r) {
    const Tensor loss = r.Scratch(DType::kF64, {1}, {0});
    LinearCrossEntropy(r.stream(), {.x = r["x"], .head = r["head"], .targets = r["targets"],
                                    .grad_scale = r.Values(r["d.loss"])[0], .loss_sum = loss, .dx = r["d.x"], .dhead = r["d.head"], .chunk_tokens = chunk}, r.work());
  };
  op.reference = [=](const OpValues& in, OpValues& out) {
    double loss = 0, valid = 0;
    out["logits"];
    for (int64_t t = 0; t < n_T; ++t) {
      double sum = 0, of_target = 0;
      for (int64_t v = 0; v < V; ++v) {
        double z = 0;
        for (int64_t d = 0; d < D; ++d) z += in.at("x")[static_cast<size_t>(t * D + d)] * in.at("head")[static_cast<size_t>(v * D + d)];
        out["logits"].push_back(z);
        sum += std::exp(z);
        if (static_cast<double>(v) == targets[static_cast<size_t>(t)]) of_target = z;
      }
      if (targets[static_cast<size_t>(t)] >= 0) loss += std::log(sum) - of_target, valid += 1;
    }
    out["loss"] = {loss};
    out["valid"] = {valid};
  };
  CheckOp(op);
}

TEST_CASE("linear cross-entropy: ignored targets, chunks that do and do not divide") {
  CheckLoss(7, 11, {3, -1, 0, 10, 5}, 1024);
  CheckLoss(7, 11, {3, -1, 0, 10, 5}, 2);
  CheckLoss(20, 257, {3, 256, 0, 10, 5, 5, 5, -1, -1, 77, 78, 79}, 4);
  CheckLoss(3, 2, {0, 1}, 1024);
  CheckLoss(5, 9, {4}, 1024);
  CheckLoss(5, 9, {-1, -1, -1}, 2);
  CheckLoss(5, 9, {}, 2);
}

TEST_CASE("linear cross-entropy: loss, count and head gradient add to what was there") {
  CpuFixture cpu;
  for (const int64_t chunk : {int64_t{2}, int64_t{1024}}) {
    const Tensor x = cpu.Make(DType::kF64, {5, 3}, RandomValues("x", 15)), head = cpu.Make(DType::kF64, {4, 3}, RandomValues("h", 12));
    const Tensor targets = cpu.Make(DType::kI32, {5}, {1, 2, -1, 0, 3}), loss = cpu.Make(DType::kF64, {1});
    const Tensor valid = cpu.Make(DType::kI64, {1}), dx = cpu.Make(DType::kF64, {5, 3}), dhead = cpu.Make(DType::kF64, {4, 3});
    LinearCrossEntropyArgs args{.x = x, .head = head, .targets = targets, .grad_scale = 0.25, .loss_sum = loss, .valid = valid,
                                .dx = dx, .dhead = dhead, .chunk_tokens = chunk};
    LinearCrossEntropy(cpu.stream(), args, cpu.work());
    const double once = ValuesOf(loss)[0];
    std::vector<double> expected = ValuesOf(dhead);
    for (double& g : expected) g *= 3;
    args.beta_head = 2;
    LinearCrossEntropy(cpu.stream(), args, cpu.work());
    CHECK(ValuesOf(loss)[0] == Approx(2 * once).epsilon(1e-14));
    CHECK(ValuesOf(valid)[0] == 8);
    CHECK(RelativeL2(ValuesOf(dhead), expected) < 1e-14);
  }
}

TEST_CASE("linear cross-entropy: a vocabulary of one is certain") {
  CpuFixture cpu;
  const Tensor x = cpu.Make(DType::kF32, {2, 1}, {3, -4}), head = cpu.Make(DType::kF32, {1, 1}, {5});
  const Tensor loss = cpu.Make(DType::kF64, {1}), dx = cpu.Make(DType::kF32, {2, 1}, {NAN, NAN});
  const Tensor dhead = cpu.Make(DType::kF32, {1, 1}, {NAN});
  LinearCrossEntropy(cpu.stream(), {.x = x, .head = head, .targets = cpu.Make(DType::kI32, {2}), .loss_sum = loss, .dx = dx,
                                    .dhead = dhead}, cpu.work());
  CHECK(ValuesOf(loss)[0] == 0);
  CHECK(ValuesOf(dx) == std::vector<double>{0, 0});
  CHECK(ValuesOf(dhead) == std::vector<double>{0});
}

TEST_CASE("linear cross-entropy: large logits; a target out of range is refused") {
  CpuFixture cpu;
  const Tensor x = cpu.Make(DType::kF32, {2, 1}, {1000, -1000}), head = cpu.Make(DType::kF32, {2, 1}, {1, -1});
  const Tensor loss = cpu.Make(DType::kF64, {1});
  LinearCrossEntropy(cpu.stream(), {.x = x, .head = head, .targets = cpu.Make(DType::kI32, {2}, {0, 0}), .loss_sum = loss}, cpu.work());
  CHECK(ValuesOf(loss)[0] == 2000);
  CHECK_THROWS_AS(LinearCrossEntropy(cpu.stream(), {.x = x, .head = head, .targets = cpu.Make(DType::kI32, {2}, {0, 2}),
                                                    .loss_sum = loss}, cpu.work()), InternalError);
}

}  // namespace
}  // namespace yardmaster::testing
