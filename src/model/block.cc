#include "src/model/block.h"

namespace yardmaster {
namespace {

std::string Prefix(int64_t layer) { return StrCat("model.layers.", layer); }

}  // namespace

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kAttention: return "attention";
    case Phase::kMlp: return "mlp";
    case Phase::kRoute: return "route";
    case Phase::kDispatch: return "dispatch";
    case Phase::kExperts: return "experts";
    case Phase::kCombine: return "combine";
  }
  return "?";
}

Block::Block(ParameterList& list, const ModelConfig& c, int64_t layer, ComputeTypes types,
             bool attend_across_documents, Dispatcher* dispatcher, const MoeConfig& moe)
    : parameters_begin_(list.parameters().size()),
      attention_norm_(list, Prefix(layer) + ".input_layernorm.weight", c.hidden_size, c.rms_norm_eps),
      mlp_norm_(list, Prefix(layer) + ".post_attention_layernorm.weight", c.hidden_size, c.rms_norm_eps),
      attention_(list, Prefix(layer) + ".self_attn", c, attend_across_documents) {
  const std::string prefix = Prefix(layer) + ".mlp";
  mlp_begin_ = list.parameters().size();
  if (c.IsMoeLayer(layer)) {
    YM_CHECK(dispatcher != nullptr, "layer ", layer, " routes tokens without a dispatcher");
    phases_ = {Phase::kAttention, Phase::kRoute, Phase::kDispatch, Phase::kExperts, Phase::kCombine};
    moe_ = std::make_unique<MoeLayer>(list, prefix, c, types.accum, dispatcher, moe);
    moe_->set_layer(layer);
  } else {
    phases_ = {Phase::kAttention, Phase::kMlp};
    mlp_ = std::make_unique<Mlp>(list, prefix, c.hidden_size, c.intermediate_size, c.initializer_range);
  }
  parameters_end_ = list.parameters().size();
}

std::pair<size_t, size_t> Block::CompletedBy(Phase phase) const {
  if (phase == Phase::kMlp || phase == Phase::kRoute) return {mlp_begin_, parameters_end_};
  if (phase == Phase::kAttention) return {parameters_begin_, mlp_begin_};  // both norms among them
  return {0, 0};
}

void Block::Forward(Phase phase, Context& ctx, MicroBatch& mb, BlockSaved& s) const {
  const auto normalise = [&](const RmsNorm& norm, const Tensor& h, RmsNormSaved& saved, Arena& arena) {
    const Tensor x = arena.Allocate("block/x", ctx.types.compute, h.shape());
    norm.Forward(ctx, mb, h, x, saved);
    return x;
  };
  switch (phase) {
    case Phase::kAttention: {
      ArenaScope scope(ctx.work);
      s.h_mid = mb.saved->Allocate("block/h_mid", ctx.types.compute, s.h_in.shape());
      s.attention_x = normalise(attention_norm_, s.h_in, s.attention_norm, ctx.LinearInputs(mb));
      return attention_.Forward(ctx, mb, ctx.KeptInput(s.attention_x, mb), s.h_mid, s.attention, s.h_in);
    }
    case Phase::kMlp: {
      ArenaScope scope(ctx.work);
      s.mlp_x = normalise(mlp_norm_, s.h_mid, s.mlp_norm, ctx.LinearInputs(mb));
      return mlp_->Forward(ctx, mb, ctx.KeptInput(s.mlp_x, mb), s.h_out, s.mlp, s.h_mid);
    }
    case Phase::kRoute:
      s.work_mark = ctx.work.Mark();
      // The router's gradients read it in high precision.
      s.mlp_x = normalise(mlp_norm_, s.h_mid, s.mlp_norm,
                          ctx.how.recompute >= Recompute::kNorms ? ctx.work : *mb.saved);
      return moe_->RouteForward(ctx, mb, s.mlp_x, s.moe);
    case Phase::kDispatch: return moe_->DispatchForward(ctx, mb, s.h_out, s.moe);
    case Phase::kExperts: return moe_->ExpertsForward(ctx, mb, s.moe);
    case Phase::kCombine:
      moe_->CombineForward(ctx, mb, s.h_mid, s.h_out, s.moe);
      return ctx.work.Release(s.work_mark);
  }
}

// The normalised input of a half block, where it was not saved: before the first backward phase that needs
// it.
Tensor Block::NormalisedAgain(Context& ctx, MicroBatch& mb, const RmsNorm& norm,
                              const RmsNormSaved& saved) const {
  const Tensor x = mb.saved->Allocate("block/x", ctx.types.compute, saved.x.shape());
  norm.Again(ctx, x, saved);
  return x;
}

void Block::BackwardInput(Phase phase, Context& ctx, MicroBatch& mb, const BlockGradients& g,
                          BlockSaved& s) const {
  const bool again = ctx.how.recompute >= Recompute::kNorms;
  switch (phase) {
    case Phase::kCombine:
      if (again) moe_->SetInput(s.mlp_x = NormalisedAgain(ctx, mb, mlp_norm_, s.mlp_norm), s.moe);
      return moe_->CombineBackward(ctx, mb, g.dh_out, s.moe);
    case Phase::kExperts: return moe_->ExpertsBackward(ctx, mb, s.moe);
    case Phase::kDispatch: return moe_->DispatchBackward(ctx, mb, s.moe);
    case Phase::kRoute:
      moe_->RouteBackward(ctx, mb, s.moe);
      return mlp_norm_.BackwardInput(ctx, mb, s.moe.dx, g.dh_mid, s.mlp_norm, /*dresidual=*/g.dh_out);
    case Phase::kMlp: {
      if (again) s.mlp.x = s.mlp_x = NormalisedAgain(ctx, mb, mlp_norm_, s.mlp_norm);
      ArenaScope scope(ctx.work);
      const Tensor dx = ctx.work.Allocate("block/dx", ctx.types.compute, s.mlp_x.shape());
      mlp_->BackwardInput(ctx, mb, g.dh_out, dx, s.mlp);
      return mlp_norm_.BackwardInput(ctx, mb, dx, g.dh_mid, s.mlp_norm, /*dresidual=*/g.dh_out);
    }
    case Phase::kAttention: {
      if (again) {
        s.attention_x = NormalisedAgain(ctx, mb, attention_norm_, s.attention_norm);
        attention_.SetInput(s.attention_x, s.attention);
      }
      ArenaScope scope(ctx.work);
      const Tensor dx = ctx.work.Allocate("block/dx", ctx.types.compute, s.attention_x.shape());
      attention_.BackwardInput(ctx, mb, g.dh_mid, dx, s.attention);
      return attention_norm_.BackwardInput(ctx, mb, dx, g.dh_in, s.attention_norm, /*dresidual=*/g.dh_mid);
    }
  }
}

void Block::BackwardWeight(Phase phase, Context& ctx, MicroBatch& mb, BlockSaved& s) const {
  switch (phase) {
    case Phase::kCombine: return moe_->CombineBackwardWeight(ctx, mb, s.moe);
    case Phase::kExperts: return moe_->ExpertsBackwardWeight(ctx, mb, s.moe);
    case Phase::kDispatch: return;  // rows are only copied
    case Phase::kRoute: return moe_->RouteBackwardWeight(ctx, mb, s.moe);
    case Phase::kMlp: return mlp_->BackwardWeight(ctx, mb, s.mlp);
    case Phase::kAttention: return attention_.BackwardWeight(ctx, mb, s.attention);
  }
}

}  // namespace yardmaster
