#include "src/model/mtp.h"

#include "src/base/strings.h"
#include "src/ops/gemm.h"
#include "src/ops/mtp_targets.h"

namespace yardmaster {

MtpModule::MtpModule(ParameterList& list, const ModelConfig& c, int64_t depth, ComputeTypes types,
                     bool attend_across_documents, Dispatcher* dispatcher, const MoeConfig& moe,
                     const Embedding* embedding, const LossHead* head)
    : depth_(depth),
      layer_(c.num_hidden_layers + depth - 1),
      D_(c.hidden_size),
      embedding_(embedding),
      head_(head) {
  const std::string prefix = StrCat("model.layers.", layer_);
  enorm_ = RmsNorm(list, prefix + ".enorm.weight", D_, c.rms_norm_eps);
  hnorm_ = RmsNorm(list, prefix + ".hnorm.weight", D_, c.rms_norm_eps);
  eh_proj_ = list.Add(prefix + ".eh_proj.weight", {D_, 2 * D_}, DecayClass::kMatrix, InitKind::kNormal,
                      c.initializer_range);
  block_ = std::make_unique<Block>(list, c, layer_, types, attend_across_documents, dispatcher, moe);
  norm_ = RmsNorm(list, prefix + ".shared_head.norm.weight", D_, c.rms_norm_eps);
}

void MtpModule::CountTargets(Context& ctx, const MicroBatch& mb, const Tensor& valid) const {
  MtpTargets(ctx.stream, {.tokens = mb.tokens.Reshape({mb.B, mb.S}),
                          .targets = mb.targets.Reshape({mb.B, mb.S}),
                          .document_start = mb.document_start,
                          .depth = depth_,
                          .valid = valid});
}

void MtpModule::Forward(Context& ctx, MicroBatch& mb, const Tensor& p, const Tensor& loss_sum,
                        const Tensor& logits, MtpSaved& s) const {
  YM_CHECK(mb.training && mb.mtp_scale.defined(), "multi-token prediction is trained with a loss scale");
  const auto rows = [&](const char* what) {
    return mb.saved->Allocate(what, ctx.types.compute, {mb.T(), D_});
  };
  s.mark = mb.saved->Mark();
  s.inputs = mb.saved->Allocate("mtp/inputs", DType::kI32, {mb.B, mb.S});
  s.targets = mb.saved->Allocate("mtp/targets", DType::kI32, {mb.B, mb.S});
  MtpTargets(ctx.stream, {.tokens = mb.tokens.Reshape({mb.B, mb.S}),
                          .targets = mb.targets.Reshape({mb.B, mb.S}),
                          .document_start = mb.document_start,
                          .depth = depth_,
                          .inputs = s.inputs,
                          .mtp_targets = s.targets});
  s.p = p;
  s.e = rows("mtp/e");
  s.en = rows("mtp/en");
  s.pn = rows("mtp/pn");
  embedding_->Forward(ctx, s.inputs.Reshape({mb.T()}), s.e);
  enorm_.Forward(ctx, mb, s.e, s.en, s.enorm);
  hnorm_.Forward(ctx, mb, s.p, s.pn, s.hnorm);
  s.block.h_in = rows("mtp/x");
  s.block.h_out = rows("mtp/h");
  const Tensor we = eh_proj_->value.Cols(0, D_), wh = eh_proj_->value.Cols(D_, 2 * D_);
  Gemm(ctx.stream, {.a = s.en, .b = we, .d = s.block.h_in, .trans_b = true});
  Gemm(ctx.stream, {.a = s.pn, .b = wh, .d = s.block.h_in, .trans_b = true, .beta = 1});
  for (const Phase phase : block_->phases()) block_->Forward(phase, ctx, mb, s.block);
  s.n = rows("mtp/n");
  s.dn = rows("mtp/dn");
  norm_.Forward(ctx, mb, s.block.h_out, s.n, s.norm);
  head_->Loss(ctx, {.x = s.n,
                    .head = {},
                    .targets = s.targets.Reshape({mb.T()}),
                    .grad_scale = 1,
                    .device_scale = mb.mtp_scale,
                    .loss_sum = loss_sum,
                    .dx = s.dn,
                    .logits = logits});
}

void MtpModule::Backward(Context& ctx, MicroBatch& mb, const BlockGradients& g, const Tensor& dh_above,
                         const Tensor& dp, bool accumulate, MtpSaved& s) const {
  norm_.BackwardInput(ctx, mb, s.dn, g.dh_out, s.norm, dh_above);
  for (size_t i = block_->phases().size(); i-- > 0;) {
    block_->BackwardInput(block_->phases()[i], ctx, mb, g, s.block);
    block_->BackwardWeight(block_->phases()[i], ctx, mb, s.block);
  }
  const Tensor& dx = g.dh_in;
  const double beta = eh_proj_->TakeGradBeta();
  const Tensor we = eh_proj_->value.Cols(0, D_), wh = eh_proj_->value.Cols(D_, 2 * D_);
  Gemm(ctx.stream, {.a = dx, .b = s.en, .d = eh_proj_->grad.Cols(0, D_), .trans_a = true, .beta = beta});
  Gemm(ctx.stream, {.a = dx, .b = s.pn, .d = eh_proj_->grad.Cols(D_, 2 * D_), .trans_a = true, .beta = beta});
  ArenaScope scope(ctx.work);
  const Tensor d = ctx.work.Allocate("mtp/d", ctx.types.compute, dx.shape());
  Gemm(ctx.stream, {.a = dx, .b = we, .d = d});
  enorm_.BackwardInput(ctx, mb, d, d, s.enorm);
  embedding_->BackwardWeight(ctx, s.inputs.Reshape({mb.T()}), d);
  Gemm(ctx.stream, {.a = dx, .b = wh, .d = d});
  hnorm_.BackwardInput(ctx, mb, d, dp, s.hnorm, /*dresidual=*/accumulate ? dp : Tensor());
  mb.saved->Release(s.mark);
}

}  // namespace yardmaster
