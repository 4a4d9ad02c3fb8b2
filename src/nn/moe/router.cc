#include "src/nn/moe/router.h"

#include "src/ops/gemm.h"
#include "src/ops/split_bf16.h"

namespace yardmaster {

Router::Router(ParameterList& list, const std::string& prefix, const ModelConfig& c, DType accum,
               const MoeConfig& moe)
    : spec_{.num_experts = c.n_routed_experts,
            .top_k = c.num_experts_per_tok,
            .num_groups = c.n_group,
            .topk_groups = c.topk_group,
            .score = c.scoring_func == "softmax" ? RouterScore::kSoftmax : RouterScore::kSigmoid,
            .group_score = c.topk_method == "noaux_tc" ? GroupScore::kTop2Sum : GroupScore::kMax,
            .normalise = c.norm_topk_prob,
            .scaling = c.routed_scaling_factor,
            .force = moe.force_routing == "balanced" ? ForcedRouting::kBalanced
                     : moe.force_routing == "skewed" ? ForcedRouting::kSkewed
                                                     : ForcedRouting::kNone,
            .force_skew = moe.force_skew},
      weights_{.sequence = moe.sequence_balance_weight,
               .micro_batch = moe.micro_batch_balance_weight,
               .global_batch = moe.global_batch_balance_weight,
               .z = moe.router_z_weight},
      capacity_factor_(moe.capacity_factor),
      drop_policy_(moe.drop_policy == "position" ? DropPolicy::kPosition : DropPolicy::kProbs),
      w_(list.Add(prefix + ".weight", {c.n_routed_experts, c.hidden_size}, DecayClass::kMatrix,
                  InitKind::kNormal, c.initializer_range)),
      bias_(c.HasRouterBias()
                ? list.AddBuffer(prefix + ".e_score_correction_bias", {c.n_routed_experts}, accum)
                : nullptr),
      previous_(weights_.global_batch != 0
                    ? list.AddBuffer(prefix + ".previous_load", {c.n_routed_experts}, DType::kI64)
                    : nullptr) {
  w_->value_in_accum = true;
  if (previous_ != nullptr) previous_->published = false;
}

void Router::Forward(Context& ctx, MicroBatch& mb, const Tensor& x, const Tensor& counts,
                     const Tensor& forced_idx, const Tensor& sums, RouterSaved& saved) const {
  const int64_t T = x.rows(), E = spec_.num_experts, K = spec_.top_k;
  saved.x = x;
  saved.scores = mb.saved->Allocate("router/scores", ctx.types.accum, {T, E});
  saved.idx = mb.saved->Allocate("router/idx", DType::kI32, {T, K});
  saved.w = mb.saved->Allocate("router/w", ctx.types.accum, {T, K});
  const int64_t capacity = Capacity(mb);
  const bool balance = mb.training && weights_.any();
  saved.dispatched = capacity > 0 ? mb.saved->Allocate("router/dispatched", DType::kI32, {T, K}) : saved.idx;
  saved.load = balance ? mb.saved->Allocate("router/load", DType::kI64, {mb.B, E}) : Tensor();
  saved.logits =
      balance && weights_.z != 0 ? mb.saved->Allocate("router/logits", ctx.types.accum, {T, E}) : Tensor();
  ArenaScope scope(ctx.work);
  const Tensor logits =
      saved.logits.defined() ? saved.logits : ctx.work.Allocate("router/logits", ctx.types.accum, {T, E});
  if (x.dtype() == DType::kBF16) {
    SplitLogits(ctx, x, logits);
  } else {
    Gemm(ctx.stream, {.a = x, .b = w_->value, .d = logits, .trans_b = true});
  }
  RouterForward(ctx.stream, spec_,
                {.logits = logits,
                 .bias = bias_ != nullptr ? bias_->value : Tensor(),
                 .forced_idx = forced_idx,
                 .scores = saved.scores,
                 .idx = saved.idx,
                 .w = saved.w,
                 .counts = counts});
  if (balance) {
    RouterBalanceArgs args = BalanceArgs(mb, saved);
    if (sums.defined()) args.sums = sums.Slice(kSequenceBalance, kRouterZ + 1);
    RouterBalanceForward(ctx.stream, spec_, args, ctx.work);
  }
  if (capacity > 0) {
    RouterCapacity(ctx.stream,
                   {.idx = saved.idx,
                    .w = saved.w,
                    .num_experts = E,
                    .capacity = capacity,
                    .policy = drop_policy_,
                    .kept_idx = saved.dispatched,
                    .dropped = sums.defined() ? sums.Slice(kDroppedPairs, kDroppedPairs + 1) : Tensor()},
                   ctx.work);
  }
}

int64_t Router::Capacity(const MicroBatch& mb) const {
  if (!mb.training || capacity_factor_ == 0) return 0;
  return ExpertCapacity(mb.T(), spec_.top_k, spec_.num_experts, capacity_factor_);
}

RouterBalanceArgs Router::BalanceArgs(const MicroBatch& mb, const RouterSaved& saved) const {
  return {.logits = saved.logits,
          .scores = saved.scores,
          .previous = previous_ != nullptr ? previous_->value : Tensor(),
          .load = saved.load,
          .share = mb.share};
}

void Router::BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dw_TK, const Tensor& dx_accumulated,
                           RouterSaved& saved) const {
  saved.dlogits = mb.saved->Allocate("router/dlogits", ctx.types.accum, saved.scores.shape());
  RouterBackward(ctx.stream, spec_,
                 {.dw = dw_TK, .scores = saved.scores, .idx = saved.idx, .dlogits = saved.dlogits});
  if (saved.load.defined())
    RouterBalanceBackward(ctx.stream, spec_, weights_, BalanceArgs(mb, saved), saved.dlogits);
  if (dx_accumulated.dtype() == DType::kBF16) return AddSplitInput(ctx, saved.dlogits, dx_accumulated);
  Gemm(ctx.stream, {.a = saved.dlogits, .b = w_->value, .d = dx_accumulated, .beta = 1});
}

void Router::BackwardWeight(Context& ctx, MicroBatch& /*mb*/, const RouterSaved& saved) const {
  if (saved.x.dtype() == DType::kBF16) return SplitWeight(ctx, saved.dlogits, saved.x);
  Gemm(ctx.stream,
       {.a = saved.dlogits, .b = saved.x, .d = w_->grad, .trans_a = true, .beta = w_->TakeGradBeta()});
}

// logits = x W0^T + x W1^T + x W2^T, the three products as one.
void Router::SplitLogits(Context& ctx, const Tensor& x, const Tensor& logits) const {
  ArenaScope scope(ctx.work);
  const int64_t E = spec_.num_experts, T = x.rows(), D = x.cols();
  const Tensor terms = ctx.work.Allocate("router/w terms", DType::kBF16, {3 * E, D});
  const Tensor products = ctx.work.Allocate("router/products", ctx.types.accum, {T, 3 * E});
  SplitBf16(ctx.stream, w_->value,
            {{terms.Slice(0, E), 0}, {terms.Slice(E, 2 * E), 1}, {terms.Slice(2 * E, 3 * E), 2}});
  Gemm(ctx.stream, {.a = x, .b = terms, .d = products, .trans_b = true});
  AddTerms(ctx.stream, {products.Cols(2 * E, 3 * E), products.Cols(E, 2 * E), products.Cols(0, E)}, 0,
           logits);
}

// dx += l0 W0 + l1 W0 + l0 W1, rounded once: [l0 | l1 | l0] times [W0; W0; W1].
void Router::AddSplitInput(Context& ctx, const Tensor& dlogits, const Tensor& dx) const {
  ArenaScope scope(ctx.work);
  const int64_t E = spec_.num_experts, T = dx.rows(), D = dx.cols();
  const Tensor l = ctx.work.Allocate("router/dlogits terms", DType::kBF16, {T, 3 * E});
  const Tensor w = ctx.work.Allocate("router/w terms", DType::kBF16, {3 * E, D});
  SplitBf16(ctx.stream, dlogits, {{l.Cols(0, E), 0}, {l.Cols(E, 2 * E), 1}, {l.Cols(2 * E, 3 * E), 0}});
  SplitBf16(ctx.stream, w_->value, {{w.Slice(0, E), 0}, {w.Slice(E, 2 * E), 0}, {w.Slice(2 * E, 3 * E), 1}});
  Gemm(ctx.stream, {.a = l, .b = w, .d = dx, .beta = 1});
}

// dW = l0^T x + l1^T x, the two products as one.
void Router::SplitWeight(Context& ctx, const Tensor& dlogits, const Tensor& x) const {
  ArenaScope scope(ctx.work);
  const int64_t E = spec_.num_experts, T = x.rows(), D = x.cols();
  const Tensor l = ctx.work.Allocate("router/dlogits terms", DType::kBF16, {T, 2 * E});
  const Tensor products = ctx.work.Allocate("router/products", ctx.types.accum, {2 * E, D});
  SplitBf16(ctx.stream, dlogits, {{l.Cols(0, E), 0}, {l.Cols(E, 2 * E), 1}});
  Gemm(ctx.stream, {.a = l, .b = x, .d = products, .trans_a = true});
  AddTerms(ctx.stream, {products.Slice(E, 2 * E), products.Slice(0, E)}, w_->TakeGradBeta(), w_->grad);
}

}  // namespace yardmaster
