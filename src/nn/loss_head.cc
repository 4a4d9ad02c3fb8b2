#include "src/nn/loss_head.h"

#include <algorithm>

namespace yardmaster {
namespace {

// Every chunk but the first reads and writes all of dhead [V, D] in FP32: at V = 129280, D = 7168 that is
// 7.4 GB, 2 ms on an H200. So a GPU takes as many tokens at once as 2 GiB of logits hold; the cpu device keeps
// them in its cache.
int64_t ChunkTokens(const Stream& stream, const Tensor& x, int64_t V) {
  constexpr int64_t kCpuTokens = 1024, kLogitBytes = int64_t{2} << 30, kMultiple = 128;
  if (stream.target() != DeviceKind::kCuda) return kCpuTokens;
  const int64_t fit = kLogitBytes / (V * static_cast<int64_t>(DTypeBytes(x.dtype())));
  const int64_t T = std::max<int64_t>(x.dim(0), 1), at_once = std::max(fit, kCpuTokens);
  const int64_t chunks = (T + at_once - 1) / at_once, tokens = (T + chunks - 1) / chunks;
  return (tokens + kMultiple - 1) / kMultiple * kMultiple;
}

}  // namespace

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
  how.chunk_tokens = ChunkTokens(ctx.stream, how.x, head_->value.dim(0));
  if (how.dx.defined()) {
    how.dhead = head_->grad;
    how.beta_head = head_->TakeGradBeta();
  }
  LinearCrossEntropy(ctx.stream, how, ctx.work);
}

}  // namespace yardmaster
