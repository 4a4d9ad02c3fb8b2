#include "src/ops/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/tensor/safetensors.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }

// Plain selection: sorts (score descending, id ascending).
std::vector<int64_t> Best(const std::vector<double>& score, int64_t n) {
  std::vector<int64_t> order(score.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)]; });
  order.resize(static_cast<size_t>(n));
  return order;
}

void Reference(const RouterSpec& s, const OpValues& in, OpValues& out) {
  out["scores"], out["idx"], out["w"];
  const auto E = static_cast<size_t>(s.num_experts);
  for (size_t t = 0; t < in.at("logits").size() / E; ++t) {
    std::vector<double> score(E), choice(E);
    double exp_sum = 0;
    for (size_t e = 0; e < E; ++e) exp_sum += std::exp(in.at("logits")[t * E + e]);
    for (size_t e = 0; e < E; ++e) {
      const double z = in.at("logits")[t * E + e];
      score[e] = s.score == RouterScore::kSoftmax ? std::exp(z) / exp_sum : SigmoidOf(z);
      choice[e] = score[e] + in.at("bias")[e];
    }
    std::vector<double> group_score;
    const size_t size = E / static_cast<size_t>(s.num_groups);
    for (size_t g = 0; g < static_cast<size_t>(s.num_groups); ++g) {
      std::vector<double> c(choice.begin() + static_cast<int64_t>(g * size), choice.begin() + static_cast<int64_t>((g + 1) * size));
      std::sort(c.begin(), c.end(), std::greater<>());
      group_score.push_back(c[0] + (size > 1 && s.group_score == GroupScore::kTop2Sum ? c[1] : 0));
    }
    std::vector<double> masked(E, -std::numeric_limits<double>::infinity());
    for (const int64_t g : Best(group_score, s.topk_groups)) {
      for (size_t e = static_cast<size_t>(g) * size; e < (static_cast<size_t>(g) + 1) * size; ++e) masked[e] = choice[e];
    }
    std::vector<int64_t> chosen = Best(masked, s.top_k);
    std::sort(chosen.begin(), chosen.end());
    double sum = 1e-20;
    for (const int64_t e : chosen) sum += score[static_cast<size_t>(e)];
    for (const int64_t e : chosen) {
      out["idx"].push_back(static_cast<double>(e));
      out["w"].push_back(score[static_cast<size_t>(e)] * s.scaling / (s.normalise ? sum : 1));
    }
    out["scores"].insert(out["scores"].end(), score.begin(), score.end());
  }
}

void CheckRouter(const RouterSpec& spec, int64_t n_T, double bias) {
  const int64_t E = spec.num_experts, K = spec.top_k;
  OpDeclaration op;
  op.name = "router";
  op.inputs = {{"logits", {n_T, E}, RandomValues("logits", n_T * E, -2, 2)},
               {"bias", {E}, RandomValues("bias", E, -bias, bias), false}};
  op.outputs = {{"scores", {n_T, E}, false}, {"idx", {n_T, K}, false, DType::kI32}, {"w", {n_T, K}}};
  op.forward = [spec](const OpRun& r) {
    RouterForward(r.stream(), spec, {.logits = r["logits"], .bias = r["bias"], .scores = r["scores"], .idx = r["idx"], .w = r["w"]});
  };
  op.backward = [spec](const OpRun& r) {
    RouterBackward(r.stream(), spec, {.dw = r["d.w"], .scores = r["scores"], .idx = r["idx"], .dlogits = r["d.logits"]});
  };
  op.reference = [spec](const OpValues& in, OpValues& out) { Reference(spec, in, out); };
  op.difference_step = 1e-5;  // small enough that no choice changes
  CheckOp(op);
}

TEST_CASE("router: groups, bias, scaling, with and without normalisation") {
  CheckRouter({.num_experts = 16, .top_k = 4, .num_groups = 4, .topk_groups = 2, .scaling = 2.5}, 50, 0.3);
  CheckRouter({.num_experts = 16, .top_k = 4, .normalise = false, .scaling = 2.5}, 33, 0.3);
  CheckRouter({.num_experts = 8, .top_k = 8}, 7, 0);
  CheckRouter({.num_experts = 5, .top_k = 1, .normalise = false}, 9, 0.5);
  CheckRouter({.num_experts = 6, .top_k = 2, .num_groups = 6, .topk_groups = 3}, 20, 0.1);  // groups of one expert
  CheckRouter({.num_experts = 256, .top_k = 8, .num_groups = 8, .topk_groups = 4, .scaling = 2.5}, 70, 0.1);  // DeepSeek-V3
  CheckRouter({.num_experts = 4, .top_k = 2}, 0, 0);
}

TEST_CASE("router: softmax scores, normalised or not, groups by their best expert") {
  constexpr RouterScore kSoftmax = RouterScore::kSoftmax;
  CheckRouter({.num_experts = 64, .top_k = 6, .score = kSoftmax, .normalise = false}, 40, 0);  // DeepSeek-V2-Lite
  CheckRouter({.num_experts = 160, .top_k = 6, .num_groups = 8, .topk_groups = 3, .score = kSoftmax,
               .group_score = GroupScore::kMax, .normalise = false, .scaling = 16}, 30, 0);  // DeepSeek-V2
  CheckRouter({.num_experts = 128, .top_k = 8, .score = kSoftmax}, 30, 0);  // Qwen3
  CheckRouter({.num_experts = 8, .top_k = 2, .score = kSoftmax}, 31, 0);    // Mixtral
  CheckRouter({.num_experts = 5, .top_k = 1, .score = kSoftmax, .normalise = false}, 9, 0.1);
  CheckRouter({.num_experts = 6, .top_k = 5, .score = kSoftmax, .scaling = 2}, 4, 0.1);
  CheckRouter({.num_experts = 16, .top_k = 4, .num_groups = 4, .topk_groups = 2, .group_score = GroupScore::kMax}, 50, 0.3);
}

struct Routed {
  std::vector<double> idx, w, counts;
};

Routed Route(const RouterSpec& spec, const std::vector<double>& logits, const std::vector<double>& bias,
             const std::vector<double>& forced = {}) {
  CpuFixture cpu;
  const int64_t E = spec.num_experts, K = spec.top_k, n_T = static_cast<int64_t>(logits.size()) / E;
  RouterArgs args{.logits = cpu.Make(DType::kF32, {n_T, E}, logits), .scores = cpu.Make(DType::kF32, {n_T, E}),
                  .idx = cpu.Make(DType::kI32, {n_T, K}), .w = cpu.Make(DType::kF32, {n_T, K}),
                  .counts = cpu.Make(DType::kI64, {E}, std::vector<double>(static_cast<size_t>(E), 100))};
  if (!bias.empty()) args.bias = cpu.Make(DType::kF32, {E}, bias);
  if (!forced.empty()) args.forced_idx = cpu.Make(DType::kI32, {n_T, K}, forced);
  RouterForward(cpu.stream(), spec, args);
  return {ValuesOf(args.idx), ValuesOf(args.w), ValuesOf(args.counts)};
}

TEST_CASE("router: the lower id wins a tie, among experts and among groups") {
  CHECK(Route({.num_experts = 4, .top_k = 2}, {0, 0, 0, 0}, {}).idx == std::vector<double>{0, 1});
  CHECK(Route({.num_experts = 4, .top_k = 2}, {0, 1, 0, 1}, {}).idx == std::vector<double>{1, 3});
  CHECK(Route({.num_experts = 4, .top_k = 1}, {-1, 1, 0, 1}, {}).idx == std::vector<double>{1});
  CHECK(Route({.num_experts = 6, .top_k = 2, .num_groups = 3, .topk_groups = 1}, {0, 0, 1, 1, 1, 1}, {}).idx ==
        std::vector<double>{2, 3});
}

TEST_CASE("router: experts of other groups are masked with -inf, not with 0") {
  // All choice scores of the group that stays are negative: a mask of 0 would let the others in.
  const Routed r = Route({.num_experts = 4, .top_k = 2, .num_groups = 2, .topk_groups = 1}, {0, 0, 0, 0}, {-2, -2, -3, -3});
  CHECK(r.idx == std::vector<double>{0, 1});
}

TEST_CASE("router: the bias selects and never weighs; counts add") {
  const Routed r = Route({.num_experts = 4, .top_k = 2, .scaling = 3}, {0, 0, 0, 0, 5, 0, 0, 0}, {0, 0, 1, 1});
  CHECK(r.idx == std::vector<double>{2, 3, 2, 3});
  for (const double w : r.w) CHECK(w == Approx(1.5).epsilon(1e-6));
  CHECK(r.counts == std::vector<double>{100, 100, 102, 102});
}

TEST_CASE("router: forced experts are weighed by this run's scores") {
  const Routed r = Route({.num_experts = 4, .top_k = 2}, {1, 2, 3, 4}, {}, {0, 2});
  CHECK(r.idx == std::vector<double>{0, 2});
  CHECK(r.w[0] == Approx(SigmoidOf(1) / (SigmoidOf(1) + SigmoidOf(3))).epsilon(1e-6));
  CHECK(r.counts == std::vector<double>{101, 100, 101, 100});
  CHECK_THROWS_AS(Route({.num_experts = 4, .top_k = 2}, {1, 2, 3, 4}, {}, {2, 0}), InternalError);
  CHECK_THROWS_AS(Route({.num_experts = 4, .top_k = 2}, {1, 2, 3, 4}, {}, {0, 4}), InternalError);
}

TEST_CASE("router: NaN logits still give distinct experts in range, so that the step reaches its verdict") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& logits : {std::vector<double>(8, nan), {nan, 1, 2, nan, 3, nan, nan, 0}}) {
    const Routed r = Route({.num_experts = 8, .top_k = 3, .num_groups = 4, .topk_groups = 2}, logits, {});
    CHECK((0 <= r.idx[0] && r.idx[0] < r.idx[1] && r.idx[1] < r.idx[2] && r.idx[2] < 8));
  }
}

std::vector<double> ForcedLoad(const RouterSpec& spec, int64_t n_T) {
  const auto logits = RandomValues("forced", n_T * spec.num_experts);
  std::vector<double> counts = Route(spec, logits, {}).counts;
  for (double& c : counts) c -= 100;
  return counts;
}

TEST_CASE("router: forced balance and forced skew") {
  const RouterSpec balanced{.num_experts = 6, .top_k = 4, .force = ForcedRouting::kBalanced};
  CHECK(ForcedLoad(balanced, 30) == std::vector<double>(6, 20));
  for (const double skew : {1.0, 1.2, 1.5}) {
    const RouterSpec spec{.num_experts = 6, .top_k = 4, .force = ForcedRouting::kSkewed, .force_skew = skew};
    const std::vector<double> load = ForcedLoad(spec, 30);
    CHECK(load[0] == std::round(20 * skew));
    const auto [least, most] = std::minmax_element(load.begin() + 1, load.end());
    CHECK(*most - *least <= 1);
  }
  const Routed r = Route({.num_experts = 16, .top_k = 2, .force = ForcedRouting::kSkewed, .force_skew = 3}, std::vector<double>(16 * 40), {});
  for (size_t p = 0; p < r.idx.size(); p += 2) CHECK(r.idx[p] < r.idx[p + 1]);
  CHECK_THROWS_AS(ForcedLoad({.num_experts = 6, .top_k = 4, .force = ForcedRouting::kSkewed, .force_skew = 1.6}, 3), InternalError);
}

void CheckGolden(const std::string& name, RouterSpec spec) {
  INFO(name);
  const SafetensorsFile file("tests/golden/router/router.safetensors", ExitCode::kData);
  const auto get = [&](const std::string& what) { return ValuesOf(file.Get(name + "." + what)); };
  const std::vector<double> map = get("map"), probs = get("probs"), dprobs = get("dprobs"), dlogits = get("dlogits");
  const int64_t n_T = file.Get(name + ".logits").dim(0), E = spec.num_experts, K = spec.top_k;
  CpuFixture cpu;
  const RouterArgs args{.logits = cpu.Make(DType::kF32, {n_T, E}, get("logits")),
                        .bias = file.Has(name + ".bias") ? cpu.Make(DType::kF32, {E}, get("bias")) : Tensor(),
                        .scores = cpu.Make(DType::kF32, {n_T, E}), .idx = cpu.Make(DType::kI32, {n_T, K}),
                        .w = cpu.Make(DType::kF32, {n_T, K})};
  RouterForward(cpu.stream(), spec, args);
  const std::vector<double> idx = ValuesOf(args.idx), w = ValuesOf(args.w);
  std::vector<double> our_map(map.size()), our_probs(map.size()), dw;
  for (int64_t p = 0; p < n_T * K; ++p) {
    const size_t at = static_cast<size_t>(p / K * E + static_cast<int64_t>(idx[static_cast<size_t>(p)]));
    our_map[at] = 1;
    our_probs[at] = w[static_cast<size_t>(p)];
    dw.push_back(dprobs[at]);
  }
  CHECK(our_map == map);
  CHECK(RelativeL2(our_probs, probs) < 1e-6);
  const Tensor ours = cpu.Make(DType::kF32, {n_T, E});
  RouterBackward(cpu.stream(), spec, {.dw = cpu.Make(DType::kF32, {n_T, K}, dw), .scores = args.scores, .idx = args.idx, .dlogits = ours});
  CHECK(RelativeL2(ValuesOf(ours), dlogits) < 2e-6);
}

TEST_CASE("router: Megatron-Core's results") {
  CheckGolden("v3", {.num_experts = 16, .top_k = 4, .num_groups = 4, .topk_groups = 2, .scaling = 2.5});
  CheckGolden("sigmoid_nogroup", {.num_experts = 16, .top_k = 2});
  CheckGolden("softmax_topk_then_softmax", {.num_experts = 8, .top_k = 2, .score = RouterScore::kSoftmax});
  CheckGolden("softmax_then_topk", {.num_experts = 16, .top_k = 4, .score = RouterScore::kSoftmax, .normalise = false});
}

}  // namespace
}  // namespace yardmaster::testing
