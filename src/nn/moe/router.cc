#include "src/nn/moe/router.h"

#include "src/ops/elementwise.h"
#include "src/ops/gemm.h"

namespace yardmaster {

Router::Router(ParameterList& list, const std::string& prefix, const ModelConfig& c, DType accum)
    : spec_{.num_experts = c.n_routed_experts,
            .top_k = c.num_experts_per_tok,
            .num_groups = c.n_group,
            .topk_groups = c.topk_group,
            .score = c.scoring_func == "softmax" ? RouterScore::kSoftmax : RouterScore::kSigmoid,
            .group_score = c.topk_method == "noaux_tc" ? GroupScore::kTop2Sum : GroupScore::kMax,
            .normalise = c.norm_topk_prob,
            .scaling = c.routed_scaling_factor},
      w_(list.Add(prefix + ".weight", {c.n_routed_experts, c.hidden_size}, DecayClass::kMatrix,
                  InitKind::kNormal, c.initializer_range)),
      bias_(c.HasRouterBias()
                ? list.AddBuffer(prefix + ".e_score_correction_bias", {c.n_routed_experts}, accum)
                : nullptr) {
  w_->value_in_accum = true;
}

// x itself, or a copy in ctx.work when activations are in a lower precision.
Tensor Router::InAccum(Context& ctx, const Tensor& x) const {
  if (x.dtype() == ctx.types.accum) return x;
  const Tensor copy = ctx.work.Allocate("router/x", ctx.types.accum, x.shape());
  Copy(ctx.stream, x, copy);
  return copy;
}

void Router::Forward(Context& ctx, MicroBatch& mb, const Tensor& x, const Tensor& counts,
                     const Tensor& forced_idx, RouterSaved& saved) const {
  const int64_t T = x.rows(), E = spec_.num_experts, K = spec_.top_k;
  saved.x = x;
  saved.scores = mb.saved->Allocate("router/scores", ctx.types.accum, {T, E});
  saved.idx = mb.saved->Allocate("router/idx", DType::kI32, {T, K});
  saved.w = mb.saved->Allocate("router/w", ctx.types.accum, {T, K});
  ArenaScope scope(ctx.work);
  const Tensor logits = ctx.work.Allocate("router/logits", ctx.types.accum, {T, E});
  Gemm(ctx.stream, {.a = InAccum(ctx, x), .b = w_->value, .d = logits, .trans_b = true});
  RouterForward(ctx.stream, spec_,
                {.logits = logits,
                 .bias = bias_ != nullptr ? bias_->value : Tensor(),
                 .forced_idx = forced_idx,
                 .scores = saved.scores,
                 .idx = saved.idx,
                 .w = saved.w,
                 .counts = counts});
}

void Router::BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dw_TK, const Tensor& dx_accumulated,
                           RouterSaved& saved) const {
  saved.dlogits = mb.saved->Allocate("router/dlogits", ctx.types.accum, saved.scores.shape());
  RouterBackward(ctx.stream, spec_,
                 {.dw = dw_TK, .scores = saved.scores, .idx = saved.idx, .dlogits = saved.dlogits});
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
