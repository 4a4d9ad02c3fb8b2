#include "src/nn/moe/router.h"

#include "src/ops/elementwise.h"
#include "src/ops/gemm.h"

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

// x itself, or a copy in ctx.work when activations are in a lower precision.
Tensor Router::InAccum(Context& ctx, const Tensor& x) const {
  if (x.dtype() == ctx.types.accum) return x;
  const Tensor copy = ctx.work.Allocate("router/x", ctx.types.accum, x.shape());
  Copy(ctx.stream, x, copy);
  return copy;
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
  Gemm(ctx.stream, {.a = InAccum(ctx, x), .b = w_->value, .d = logits, .trans_b = true});
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
  ArenaScope scope(ctx.work);
  const Tensor dx = InAccum(ctx, dx_accumulated);
  Gemm(ctx.stream, {.a = saved.dlogits, .b = w_->value, .d = dx, .beta = 1});
  if (dx.dtype() != dx_accumulated.dtype()) Copy(ctx.stream, dx, dx_accumulated);
}

void Router::BackwardWeight(Context& ctx, MicroBatch& /*mb*/, const RouterSaved& saved) const {
  ArenaScope scope(ctx.work);
  Gemm(ctx.stream, {.a = saved.dlogits,
                    .b = InAccum(ctx, saved.x),
                    .d = w_->grad,
                    .trans_a = true,
                    .beta = w_->TakeGradBeta()});
}

}  // namespace yardmaster
