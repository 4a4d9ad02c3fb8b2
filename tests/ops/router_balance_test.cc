#include "src/ops/router_balance.h"

#include <algorithm>
#include <cmath>

#include "src/ops/elementwise.h"
#include "src/tensor/safetensors.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

// The four losses of [B, S, E] logits, plainly.
std::vector<double> Losses(const RouterSpec& spec, int64_t B, const std::vector<double>& logits,
                           const std::vector<double>& previous, double share) {
  const auto E = static_cast<size_t>(spec.num_experts), K = static_cast<size_t>(spec.top_k);
  const size_t n_T = logits.size() / E, S = n_T / static_cast<size_t>(B);
  std::vector<std::vector<double>> n(n_T, std::vector<double>(E)), m(n_T, std::vector<double>(E));
  double z = 0;
  for (size_t t = 0; t < n_T; ++t) {
    double exps = 0, sum = 0;
    for (size_t e = 0; e < E; ++e) exps += std::exp(logits[t * E + e]);
    z += std::log(exps) * std::log(exps);
    std::vector<std::pair<double, size_t>> order;
    for (size_t e = 0; e < E; ++e) {
      const double v = logits[t * E + e];
      n[t][e] = spec.score == RouterScore::kSoftmax ? std::exp(v) / exps : 1 / (1 + std::exp(-v));
      sum += n[t][e];
      order.emplace_back(-n[t][e], e);
    }
    for (double& v : n[t]) v /= sum;
    std::sort(order.begin(), order.end());
    for (size_t k = 0; k < K; ++k) m[t][order[k].second] = 1;
  }
  const auto product = [&](size_t begin, size_t end) {
    double out = 0;
    for (size_t e = 0; e < E; ++e) {
      double a = 0, b = 0;
      for (size_t t = begin; t < end; ++t) a += n[t][e], b += m[t][e];
      out += a * b;
    }
    const auto tokens = static_cast<double>(end - begin);
    return out * static_cast<double>(E) / (static_cast<double>(K) * tokens * tokens);
  };
  double sequence = 0, global = 0, all = 0;
  for (size_t b = 0; b < static_cast<size_t>(B); ++b)
    sequence += product(b * S, (b + 1) * S) / static_cast<double>(B);
  for (const double p : previous) all += p;
  for (size_t t = 0; t < n_T; ++t) {
    for (size_t e = 0; e < E; ++e)
      global += n[t][e] * (all > 0 ? static_cast<double>(E) * previous[e] / all : 1);
  }
  const auto tokens = static_cast<double>(n_T);
  return {share * sequence, share * product(0, n_T), share * global / tokens, share * z / tokens};
}

// The op as one scalar output, the weighted sum of the losses; scores are made by the router.
void CheckBalance(RouterSpec spec, int64_t B, int64_t S, const RouterBalanceWeights& w,
                  std::vector<double> previous, double share) {
  const int64_t n_T = B * S, E = spec.num_experts;
  const auto route = [spec](const OpRun& r) {
    const int64_t rows = r["logits"].dim(0);
    const Tensor scores = r["scores"];
    RouterForward(r.stream(), spec,
                  {.logits = r["logits"],
                   .scores = scores,
                   .idx = r.Scratch(DType::kI32, {rows, spec.top_k}, {}),
                   .w = r.Scratch(scores.dtype(), {rows, spec.top_k}, {})});
  };
  const auto args = [share](const OpRun& r) {
    return RouterBalanceArgs{.logits = r["logits"],
                             .scores = r["scores"],
                             .previous = r["previous"],
                             .load = r["load"],
                             .share = share};
  };
  OpDeclaration op;
  op.name = "router balance";
  op.inputs = {{"logits", {n_T, E}, RandomValues("logits", n_T * E, -2, 2)},
               {"previous", {E}, previous, false, DType::kI64}};
  op.outputs = {{"losses", {4}, false, DType::kF64},
                {"scores", {n_T, E}, false},
                {"load", {B, E}, false, DType::kI64},
                {"total", {1}}};
  op.forward = [=](const OpRun& r) {
    route(r);
    RouterBalanceArgs a = args(r);
    a.sums = r.Scratch(DType::kF64, {4}, {});
    Fill(r.stream(), 0, a.sums);
    RouterBalanceForward(r.stream(), spec, a, r.work());
    const std::vector<double> l = r.Values(a.sums);
    r.Set(r["losses"], l);
    r.Set(r["total"], {w.sequence * l[0] + w.micro_batch * l[1] + w.global_batch * l[2] + w.z * l[3]});
  };
  op.backward = [=](const OpRun& r) {
    RouterBalanceWeights scaled = w;
    const double d = r.Values(r["d.total"])[0];
    for (double* v : {&scaled.sequence, &scaled.micro_batch, &scaled.global_batch, &scaled.z}) *v *= d;
    Fill(r.stream(), 0, r["d.logits"]);
    RouterBalanceBackward(r.stream(), spec, scaled, args(r), r["d.logits"]);
  };
  op.reference = [=](const OpValues& in, OpValues& out) {
    out["losses"] = Losses(spec, B, in.at("logits"), in.at("previous"), share);
    const std::vector<double>& l = out["losses"];
    out["total"] = {w.sequence * l[0] + w.micro_batch * l[1] + w.global_batch * l[2] + w.z * l[3]};
    out["load"].assign(static_cast<size_t>(B * E), 0);
    for (int64_t t = 0; t < n_T; ++t) {
      const double* z = &in.at("logits")[static_cast<size_t>(t * E)];
      double exps = 0;
      for (int64_t e = 0; e < E; ++e) exps += std::exp(z[e]);
      std::vector<std::pair<double, int64_t>> order;
      for (int64_t e = 0; e < E; ++e) {
        out["scores"].push_back(spec.score == RouterScore::kSoftmax ? std::exp(z[e]) / exps
                                                                    : 1 / (1 + std::exp(-z[e])));
        order.emplace_back(-z[e], e);
      }
      std::sort(order.begin(), order.end());
      for (int64_t k = 0; k < spec.top_k; ++k)
        ++out["load"][static_cast<size_t>(t / S * E + order[static_cast<size_t>(k)].second)];
    }
  };
  op.difference_step = 1e-5;  // small enough that no choice changes
  CheckOp(op);
}

TEST_CASE("router balance: each loss and all at once, both scores") {
  for (const RouterScore score : {RouterScore::kSigmoid, RouterScore::kSoftmax}) {
    const RouterSpec spec{.num_experts = 8, .top_k = 2, .score = score};
    const std::vector<double> previous = {5, 0, 7, 1, 100, 3, 2, 2};
    CheckBalance(spec, 3, 7, {.sequence = 1}, previous, 1);
    CheckBalance(spec, 3, 7, {.micro_batch = 1}, previous, 0.5);
    CheckBalance(spec, 3, 7, {.global_batch = 1}, previous, 1);
    CheckBalance(spec, 3, 7, {.z = 1}, previous, 0.25);
    CheckBalance(spec, 2, 5, {.sequence = 0.3, .micro_batch = 0.2, .global_batch = 0.7, .z = 0.1},
                 std::vector<double>(8, 0), 0.5);
  }
}

TEST_CASE("router balance: one for a balanced load") {
  CpuFixture cpu;
  const int64_t E = 4, n_T = 8;
  std::vector<double> scores(static_cast<size_t>(n_T * E), 0.001);
  for (int64_t t = 0; t < n_T; ++t) scores[static_cast<size_t>(t * E + t % E)] = 1;
  const Tensor sums = cpu.Make(DType::kF64, {4});
  RouterBalanceForward(cpu.stream(), {.num_experts = E, .top_k = 1},
                       {.scores = cpu.Make(DType::kF64, {n_T, E}, scores),
                        .load = cpu.Make(DType::kI64, {2, E}),
                        .sums = sums},
                       cpu.work());
  const std::vector<double> s = ValuesOf(sums);
  for (size_t i = 0; i < 3; ++i) CHECK(s[i] == Approx(1).epsilon(1e-12));
  CHECK(s[3] == 0);  // no logits, no z
}

void CheckGolden(const std::string& name, RouterSpec spec) {
  INFO(name);
  const SafetensorsFile file("tests/golden/router/router.safetensors", ExitCode::kData);
  const auto get = [&](const std::string& what) { return ValuesOf(file.Get(name + "." + what)); };
  const int64_t n_T = file.Get(name + ".logits").dim(0), E = spec.num_experts, K = spec.top_k;
  CpuFixture cpu;
  const Tensor logits = cpu.Make(DType::kF32, {n_T, E}, get("logits")),
               scores = cpu.Make(DType::kF32, {n_T, E});
  RouterForward(cpu.stream(), spec,
                {.logits = logits,
                 .scores = scores,
                 .idx = cpu.Make(DType::kI32, {n_T, K}),
                 .w = cpu.Make(DType::kF32, {n_T, K})});
  RouterBalanceArgs args{.logits = logits,
                         .scores = scores,
                         .load = cpu.Make(DType::kI64, {4, E}),
                         .sums = cpu.Make(DType::kF64, {4})};
  RouterBalanceForward(cpu.stream(), spec, args, cpu.work());
  const std::vector<double> sums = ValuesOf(args.sums);
  const std::tuple<const char*, size_t, RouterBalanceWeights> losses[] = {
      {"aux.sequence", 0, {.sequence = 1}}, {"aux.micro", 1, {.micro_batch = 1}}, {"z_loss", 3, {.z = 1}}};
  for (const auto& [loss, at, weights] : losses) {
    INFO(loss);
    CHECK(sums[at] == Approx(get(loss)[0]).epsilon(1e-5));
    const Tensor d = cpu.Make(DType::kF32, {n_T, E});
    RouterBalanceBackward(cpu.stream(), spec, weights, args, d);
    CHECK(RelativeL2(ValuesOf(d), get(std::string(loss) + ".dlogits")) < 1e-5);
  }
}

TEST_CASE("router balance: Megatron-Core's results") {
  CheckGolden("v3", {.num_experts = 16, .top_k = 4, .num_groups = 4, .topk_groups = 2, .scaling = 2.5});
  CheckGolden("sigmoid_nogroup", {.num_experts = 16, .top_k = 2});
  CheckGolden("softmax_topk_then_softmax", {.num_experts = 8, .top_k = 2, .score = RouterScore::kSoftmax});
  CheckGolden("softmax_then_topk",
              {.num_experts = 16, .top_k = 4, .score = RouterScore::kSoftmax, .normalise = false});
}

}  // namespace
}  // namespace yardmaster::testing
