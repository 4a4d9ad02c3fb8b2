#include "src/ops/adamw.h"

#include <cmath>
#include <cstring>

#include "src/ops/step_control.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

constexpr int64_t kStateBytes = sizeof(StepState);

Tensor MakeState(CpuFixture& cpu, const StepState& s) {
  const Tensor t = cpu.Make(DType::kU8, {kStateBytes});
  std::memcpy(t.data(), &s, sizeof(s));
  return t;
}

TEST_CASE("adamw: torch.optim.AdamW's values, in double") {
  // torch 2.11, lr 1e-2, betas (0.9, 0.95), eps 1e-8, weight decay 0.1
  CpuFixture cpu;
  const auto make = [&](const std::vector<double>& v) { return cpu.Make(DType::kF64, {3}, v); };
  const AdamWTensor t{.master = make({0.5, -1.25, 2}), .grad = make({0, 0, 0}), .m = make({0, 0, 0}), .v = make({0, 0, 0}),
                      .weight_decay = 0.1};
  const double grads[3][3] = {{0.3, -0.2, 0.01}, {-0.1, 0.4, 0.02}, {0.25, 0, -3}};
  const double expected[3][3] = {{0.4895000003333333, -1.2387500005, 1.98800000999999},
                                 {0.4849674334972932, -1.2411449898902382, 1.9764321573083428},
                                 {0.4780661795602979, -1.2427490548008369, 1.9806335742187327}};
  for (int step = 0; step < 3; ++step) {
    StepState s;
    s.step = step;
    s.learning_rate = 1e-2;
    SetValues(t.grad, {grads[step][0], grads[step][1], grads[step][2]});
    AdamWMulti(cpu.stream(), {t}, {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}, MakeState(cpu, s));
    for (size_t i = 0; i < 3; ++i) CHECK(ValuesOf(t.master)[i] == Approx(expected[step][i]).epsilon(1e-14));
  }
}

// Both types and every moment type, several steps, clipped, against the formula in double.
TEST_CASE("adamw: many tensors, moments in F32, F64 and BF16, against plain code") {
  for (const DType type : {DType::kF32, DType::kF64}) {
    for (const DType moments : {DType::kBF16, DType::kF32, DType::kF64}) {
      CpuFixture cpu(3);
      const AdamWHyper hyper{.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-4};
      std::vector<AdamWTensor> tensors;
      std::vector<std::vector<double>> p, m, v;
      for (const int64_t n : {int64_t{1}, int64_t{0}, int64_t{20001}}) {
        const std::string id = std::to_string(n);
        tensors.push_back({.master = cpu.Make(type, {n}, RandomValues("p" + id, n)),
                           .weight = cpu.Make(DType::kBF16, {n}, RandomValues("w" + id, n)), .grad = cpu.Make(type, {n}),
                           .m = cpu.Make(moments, {n}), .v = cpu.Make(moments, {n}), .weight_decay = n == 1 ? 0.0 : 0.3});
        p.push_back(ValuesOf(tensors.back().master));
        m.emplace_back(static_cast<size_t>(n)), v.emplace_back(static_cast<size_t>(n));
      }
      for (int step = 0; step < 4; ++step) {
        StepState s;
        s.step = step;
        s.learning_rate = 0.01 * (step + 1);
        s.clip_factor = 0.5;
        for (size_t k = 0; k < tensors.size(); ++k) {
          SetValues(tensors[k].grad, RandomValues("g" + std::to_string(k) + std::to_string(step), static_cast<int64_t>(p[k].size())));
          const std::vector<double> g = ValuesOf(tensors[k].grad);
          for (size_t i = 0; i < g.size(); ++i) {
            const double clipped = g[i] * s.clip_factor;
            m[k][i] = hyper.beta1 * m[k][i] + (1 - hyper.beta1) * clipped;
            v[k][i] = hyper.beta2 * v[k][i] + (1 - hyper.beta2) * clipped * clipped;
            p[k][i] -= s.learning_rate * tensors[k].weight_decay * p[k][i];
            p[k][i] -= s.learning_rate * (m[k][i] / (1 - std::pow(hyper.beta1, step + 1))) /
                       (std::sqrt(v[k][i] / (1 - std::pow(hyper.beta2, step + 1))) + hyper.eps);
          }
        }
        AdamWMulti(cpu.stream(), tensors, hyper, MakeState(cpu, s));
      }
      const double tolerance = moments == DType::kBF16 ? 2e-3 : type == DType::kF32 || moments == DType::kF32 ? 1e-6 : 1e-14;
      for (size_t k = 0; k < tensors.size(); ++k) {
        INFO(DTypeName(type) << ", moments " << DTypeName(moments) << ", tensor " << k);
        CHECK(RelativeL2(ValuesOf(tensors[k].master), p[k]) < tolerance);
        CHECK(RelativeL2(ValuesOf(tensors[k].m), m[k]) < 4 * tolerance);
        CHECK(RelativeL2(ValuesOf(tensors[k].v), v[k]) < 4 * tolerance);
        const std::vector<double> weight = ValuesOf(tensors[k].weight), master = ValuesOf(tensors[k].master);
        for (size_t i = 0; i < weight.size(); ++i) {
          const double rounded = static_cast<float>(BFloat16(static_cast<float>(master[i])));
          if (weight[i] != rounded) FAIL("weight " << i << " is " << weight[i] << ", not " << rounded);
        }
      }
    }
  }
}

TEST_CASE("adamw: a bad verdict changes nothing, and the number of threads no bit") {
  std::string first;
  for (const int threads : {1, 3}) {
    CpuFixture cpu(threads);
    const int64_t n = 40000;
    const AdamWTensor t{.master = cpu.Make(DType::kF32, {n}, RandomValues("p", n)), .weight = cpu.Make(DType::kBF16, {n}),
                        .grad = cpu.Make(DType::kF32, {n}, RandomValues("g", n)),
                        .m = cpu.Make(DType::kBF16, {n}, RandomValues("m", n)),
                        .v = cpu.Make(DType::kBF16, {n}, RandomValues("v", n, 0, 1)), .weight_decay = 0.1};
    const auto bytes = [&] { return BytesOf(t.master) + BytesOf(t.m) + BytesOf(t.v) + BytesOf(t.weight); };
    const std::string before = bytes();
    StepState s;
    s.learning_rate = 0.1;
    for (const StepVerdict bad : {StepVerdict::kNonFinite, StepVerdict::kOverflow}) {
      s.verdict = static_cast<int32_t>(bad);
      AdamWMulti(cpu.stream(), {t}, {}, MakeState(cpu, s));
      CHECK(bytes() == before);
    }
    s.verdict = 0;
    AdamWMulti(cpu.stream(), {t}, {}, MakeState(cpu, s));
    CHECK(bytes() != before);
    if (first.empty()) first = bytes();
    CHECK(bytes() == first);
  }
}

}  // namespace
}  // namespace yardmaster::testing
