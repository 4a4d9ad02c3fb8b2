#include "src/nn/loss_head.h"

namespace yardmaster {

LossHead::LossHead(ParameterList& list, const ModelConfig& c)
    : norm_(list, "model.norm.weight", c.hidden_size, c.rms_norm_eps),
      head_(list.Add("lm_head.weight", {c.vocab_size, c.hidden_size}, DecayClass::kEmbedding,
                     InitKind::kNormal, c.initializer_range)) {}

void LossHead::Forward(Context& ctx, MicroBatch& mb, const Tensor& h, const Tensor& loss_sum,
                       const Tensor& valid, const Tensor& logits, LossHeadSaved& saved,
                       const Tensor& kept) const {
  saved.dn = mb.training ? mb.saved->Allocate("head/dn", ctx.types.compute, h.shape()) : Tensor();
  ArenaScope scope(ctx.work);
  const Tensor n = kept.defined() ? kept : ctx.work.Allocate("head/n", ctx.types.compute, h.shape());
  norm_.Forward(ctx, mb, h, n, saved.norm);
  Loss(ctx, {.x = n,
             .head = {},
             .targets = mb.targets,
             .grad_scale = mb.grad_scale,
             .loss_sum = loss_sum,
             .valid = valid,
             .dx = saved.dn,
             .logits = logits});
}

void LossHead::BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dh, const LossHeadSaved& saved,
                             const Tensor& dresidual) const {
  norm_.BackwardInput(ctx, mb, saved.dn, dh, saved.norm, dresidual);
}

void LossHead::Loss(Context& ctx, LinearCrossEntropyArgs how) const {
  how.head = head_->value;
  if (how.dx.defined()) {
    how.dhead = head_->grad;
    how.beta_head = head_->TakeGradBeta();
  }
  LinearCrossEntropy(ctx.stream, how, ctx.work);
}

}  // namespace yardmaster
