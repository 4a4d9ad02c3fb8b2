#include <algorithm>
#include <cmath>

#include "src/base/strings.h"
#include "src/ops/router.h"
#include "src/ops/router_balance.h"
#include "src/ops/router_capacity.h"
#include "tools/bench_ops/ops/op_cases.h"
#include "tools/bench_ops/ops/random_inputs.h"

namespace yardmaster {
namespace {

RouterSpec SpecOf(const BenchSizes& s) {
  return {.num_experts = s.experts,
          .top_k = s.top_k,
          .num_groups = s.groups,
          .topk_groups = s.topk_groups,
          .normalise = s.top_k > 1,  // the weight of a single choice would be 1, whatever its score
          .scaling = 2.5};
}

std::string SizesOf(const BenchSizes& s) {
  return StrCat(s.T(), " tokens, ", s.top_k, " of ", s.experts, " experts");
}

// A token's logits are at least 2.8 / E apart, so that rounding to F32 decides nothing.
std::vector<double> SpreadLogits(const BenchSizes& s) {
  std::vector<double> logits(static_cast<size_t>(s.T() * s.experts));
  const std::vector<double> order = UniformValues(s, "order", s.T() * s.experts, 0, 1),
                            within = UniformValues(s, "within", s.T() * s.experts, 0, 0.3);
  std::vector<size_t> by_order(static_cast<size_t>(s.experts));
  for (size_t first = 0; first < logits.size(); first += by_order.size()) {
    for (size_t e = 0; e < by_order.size(); ++e) by_order[e] = e;
    std::sort(by_order.begin(), by_order.end(),
              [&](size_t a, size_t b) { return order[first + a] < order[first + b]; });
    for (size_t rank = 0; rank < by_order.size(); ++rank)
      logits[first + by_order[rank]] =
          -2 + 4 * (static_cast<double>(rank) + within[first + rank]) / static_cast<double>(s.experts);
  }
  return logits;
}

}  // namespace

BenchOp BenchRouter(const BenchSizes& s) {
  const Shape by_expert{s.T(), s.experts}, by_choice{s.T(), s.top_k};
  const RouterSpec spec = SpecOf(s);
  BenchOp op;
  op.sizes = SizesOf(s);
  op.buffers = {
      {.name = "logits", .shape = by_expert, .type = BenchType::kAccum, .values = SpreadLogits(s)},
      {.name = "bias",
       .shape = {s.experts},
       .type = BenchType::kAccum,
       .values = UniformValues(s, "bias", s.experts, -1e-3, 1e-3)},
      {.name = "scores", .shape = by_expert, .type = BenchType::kAccum},
      {.name = "idx", .shape = by_choice, .type = BenchType::kI32},
      {.name = "w", .shape = by_choice, .type = BenchType::kAccum},
      {.name = "counts",
       .shape = {s.experts},
       .type = BenchType::kI64,
       .values = std::vector<double>(static_cast<size_t>(s.experts))},
      {.name = "dw", .shape = by_choice, .type = BenchType::kAccum, .scale = 1},
      {.name = "dlogits", .shape = by_expert, .type = BenchType::kAccum},
  };
  op.calls = {
      {.name = "forward",
       .run =
           [spec](const BenchRun& r) {
             RouterForward(r.stream(), spec,
                           {.logits = r["logits"],
                            .bias = r["bias"],
                            .scores = r["scores"],
                            .idx = r["idx"],
                            .w = r["w"],
                            .counts = r["counts"]});
           },
       .outputs = {"scores", "idx", "w", "counts"},
       .moves = {{"logits"}, {"bias"}, {"scores"}, {"idx"}, {"w"}, {"counts"}, {"counts"}},
       .tolerance_bf16 = 1e-5},
      {.name = "backward",
       .run =
           [spec](const BenchRun& r) {
             RouterBackward(r.stream(), spec,
                            {.dw = r["dw"], .scores = r["scores"], .idx = r["idx"], .dlogits = r["dlogits"]});
           },
       .outputs = {"dlogits"},
       .moves = {{"dw"}, {"scores"}, {"idx"}, {"dlogits"}},
       .tolerance_bf16 = 1e-5},
  };
  return op;
}

BenchOp BenchRouterBalance(const BenchSizes& s) {
  const Shape by_expert{s.T(), s.experts};
  const RouterSpec spec = SpecOf(s);
  std::vector<double> previous;
  for (const double p : UniformValues(s, "previous", s.experts, 0, 1000)) previous.push_back(std::floor(p));
  BenchOp op;
  op.sizes = SizesOf(s);
  op.buffers = {
      {.name = "logits", .shape = by_expert, .type = BenchType::kAccum, .scale = 1},
      {.name = "scores",
       .shape = by_expert,
       .type = BenchType::kAccum,
       .values = UniformValues(s, "scores", s.T() * s.experts, 0.05, 1)},
      {.name = "previous", .shape = {s.experts}, .type = BenchType::kI64, .values = previous},
      {.name = "load", .shape = {s.B, s.experts}, .type = BenchType::kI64},
      {.name = "sums", .shape = {4}, .type = BenchType::kF64, .values = {0, 0, 0, 0}},
      {.name = "dlogits", .shape = by_expert, .type = BenchType::kAccum, .scale = 1e-3},
  };
  const auto args = [](const BenchRun& r) {
    return RouterBalanceArgs{.logits = r["logits"],
                             .scores = r["scores"],
                             .previous = r["previous"],
                             .load = r["load"],
                             .share = 0.5,
                             .sums = r["sums"]};
  };
  op.calls = {
      {.name = "forward",
       .run = [=](const BenchRun& r) { RouterBalanceForward(r.stream(), spec, args(r), r.work()); },
       .outputs = {"load", "sums"},
       .moves = {{"logits"}, {"scores"}, {"previous"}, {"load"}},
       .tolerance_bf16 = 1e-5},
      {.name = "backward",
       .run =
           [=](const BenchRun& r) {
             RouterBalanceBackward(r.stream(), spec,
                                   {.sequence = 1, .micro_batch = 2, .global_batch = 0.5, .z = 0.1}, args(r),
                                   r["dlogits"]);
           },
       .outputs = {"dlogits"},
       .moves = {{"logits"}, {"scores"}, {"previous"}, {"load"}, {"dlogits"}, {"dlogits"}},
       .tolerance_bf16 = 1e-5},
  };
  return op;
}

BenchOp BenchRouterCapacity(const BenchSizes& s) {
  const Shape by_choice{s.T(), s.top_k};
  BenchOp op;
  op.sizes = SizesOf(s) + ", capacity factor 1";
  op.buffers = {
      {.name = "idx", .shape = by_choice, .type = BenchType::kI32, .values = RandomExperts(s)},
      {.name = "w",
       .shape = by_choice,
       .type = BenchType::kAccum,
       .values = UniformValues(s, "weights", s.routed(), 0, 1)},
      {.name = "kept_idx", .shape = by_choice, .type = BenchType::kI32},
      {.name = "dropped", .shape = {1}, .type = BenchType::kF64, .values = {0}},
  };
  const auto call = [&](const char* name, DropPolicy policy, std::vector<BenchMove> moves) {
    const int64_t E = s.experts, C = ExpertCapacity(s.T(), s.top_k, E, 1.0);
    op.calls.push_back({.name = name,
                        .run =
                            [=](const BenchRun& r) {
                              RouterCapacity(r.stream(),
                                             {.idx = r["idx"],
                                              .w = r["w"],
                                              .num_experts = E,
                                              .capacity = C,
                                              .policy = policy,
                                              .kept_idx = r["kept_idx"],
                                              .dropped = r["dropped"]},
                                             r.work());
                            },
                        .outputs = {"kept_idx", "dropped"},
                        .moves = std::move(moves)});
  };
  call("probs", DropPolicy::kProbs, {{"idx"}, {"w"}, {"kept_idx"}});
  call("position", DropPolicy::kPosition, {{"idx"}, {"kept_idx"}});
  return op;
}

}  // namespace yardmaster
