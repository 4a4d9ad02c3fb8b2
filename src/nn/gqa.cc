#include "src/nn/gqa.h"

#include "src/nn/rope.h"
#include "src/ops/attention.h"
#include "src/ops/gqa_rope.h"

namespace yardmaster {
namespace {

AttentionArgs MakeArgs(const Context& ctx, const MicroBatch& mb, const GqaSaved& s, double scale,
                       const Tensor& document_start) {
  const auto by_sample = [&](const Tensor& x) { return x.Reshape({mb.B, mb.S, x.dim(1), x.dim(2)}); };
  return {.q = by_sample(s.q),
          .k = by_sample(s.k),
          .v = by_sample(s.v),
          .scale = scale,
          .document_start = document_start,
          .o = by_sample(s.o),
          .lse = s.lse,
          .mode = ctx.how.attention,
          .max_workspace = ctx.how.attention_workspace};
}

}  // namespace

Gqa::Gqa(ParameterList& list, const std::string& prefix, const ModelConfig& c, bool attend_across_documents)
    : H_(c.num_attention_heads),
      G_(c.key_value_heads()),
      Q_(c.qk_head_dim()),
      scale_(AttentionScale(c)),
      norms_(c.NormalisesQueriesAndKeys()),
      across_documents_(attend_across_documents) {
  const int64_t D = c.hidden_size;
  const double std = c.initializer_range;
  q_ = Linear(list, prefix + ".q_proj.weight", H_ * Q_, D, std);
  k_ = Linear(list, prefix + ".k_proj.weight", G_ * Q_, D, std);
  v_ = Linear(list, prefix + ".v_proj.weight", G_ * Q_, D, std);
  o_ = Linear(list, prefix + ".o_proj.weight", D, H_ * Q_, std);
  if (norms_) {
    q_norm_ = RmsNorm(list, prefix + ".q_norm.weight", Q_, c.rms_norm_eps);
    k_norm_ = RmsNorm(list, prefix + ".k_norm.weight", Q_, c.rms_norm_eps);
  }
}

void Gqa::Forward(Context& ctx, MicroBatch& mb, const RecipeOperand& x, const Tensor& y, GqaSaved& s,
                  const Tensor& residual) const {
  const int64_t T = mb.T();
  const DType type = ctx.types.compute;
  s.x = x.ForWeightGradient();
  s.q = mb.saved->Allocate("gqa/q", type, {T, H_, Q_});
  s.k = mb.saved->Allocate("gqa/k", type, {T, G_, Q_});
  s.v = mb.saved->Allocate("gqa/v", type, {T, G_, Q_});
  s.o = mb.saved->Allocate("gqa/o", type, {T, H_, Q_});
  s.lse = mb.saved->Allocate("gqa/lse", ctx.types.accum, {mb.B, H_, mb.S});
  ArenaScope scope(ctx.work);
  const RecipeOperand input = ctx.ForProducts(x);  // of queries, keys and values
  v_.Forward(ctx, input, s.v.Reshape({T, G_ * Q_}));
  if (norms_) {
    s.q_raw = mb.saved->Allocate("gqa/q_raw", type, {T * H_, Q_});
    s.k_raw = mb.saved->Allocate("gqa/k_raw", type, {T * G_, Q_});
    q_.Forward(ctx, input, s.q_raw.Reshape({T, H_ * Q_}));
    k_.Forward(ctx, input, s.k_raw.Reshape({T, G_ * Q_}));
    q_norm_.Forward(ctx, mb, s.q_raw, s.q.Reshape({T * H_, Q_}), s.q_norm);
    k_norm_.Forward(ctx, mb, s.k_raw, s.k.Reshape({T * G_, Q_}), s.k_norm);
  } else {
    q_.Forward(ctx, input, s.q.Reshape({T, H_ * Q_}));
    k_.Forward(ctx, input, s.k.Reshape({T, G_ * Q_}));
  }
  GqaRopeForward(ctx.stream, {.q = s.q, .k = s.k, .positions = mb.positions, .table = rope_table_});
  AttentionForward(ctx.stream, MakeArgs(ctx, mb, s, scale_, mb.DocumentStartUnless(across_documents_)),
                   ctx.work);
  o_.Forward(ctx, s.o.Reshape({T, H_ * Q_}), y, residual);
}

void Gqa::BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dy, const Tensor& dx, GqaSaved& s) const {
  const int64_t T = mb.T();
  const DType type = ctx.types.compute;
  ArenaScope scope(ctx.work);
  Arena& values = ctx.ValuesUntilWeights(*mb.saved);
  const Tensor dq = values.Allocate("gqa/dq", type, {T, H_, Q_});
  const Tensor dk = values.Allocate("gqa/dk", type, {T, G_, Q_});
  const Tensor dv = values.Allocate("gqa/dv", type, {T, G_, Q_});
  // Each gradient's copies: rows until the product that follows, columns until BackwardWeight.
  const auto both = [&](const Tensor& gradient) {
    return ctx.ForBoth(gradient.Reshape({T, gradient.elements() / T}), *mb.saved);
  };
  {
    ArenaScope heads(ctx.work);
    const Tensor do_ = ctx.work.Allocate("gqa/do", type, {T, H_, Q_});
    s.dy = both(dy);
    o_.BackwardInput(ctx, s.dy, do_.Reshape({T, H_ * Q_}));
    AttentionBackward(ctx.stream,
                      {.forward = MakeArgs(ctx, mb, s, scale_, mb.DocumentStartUnless(across_documents_)),
                       .do_ = do_.Reshape({mb.B, mb.S, H_, Q_}),
                       .dq = dq.Reshape({mb.B, mb.S, H_, Q_}),
                       .dk = dk.Reshape({mb.B, mb.S, G_, Q_}),
                       .dv = dv.Reshape({mb.B, mb.S, G_, Q_}),
                       .deterministic = ctx.how.deterministic},
                      ctx.work);
  }
  GqaRopeBackward(ctx.stream, {.q = dq, .k = dk, .positions = mb.positions, .table = rope_table_});
  if (norms_) {
    const Tensor q = dq.Reshape({T * H_, Q_}), k = dk.Reshape({T * G_, Q_});
    q_norm_.BackwardInput(ctx, mb, q, q, s.q_norm);
    k_norm_.BackwardInput(ctx, mb, k, k, s.k_norm);
  }
  s.dq = both(dq);
  q_.BackwardInput(ctx, s.dq, dx);
  s.dk = both(dk);
  k_.BackwardInput(ctx, s.dk, dx, /*accumulate=*/true);
  s.dv = both(dv);
  v_.BackwardInput(ctx, s.dv, dx, /*accumulate=*/true);
}

void Gqa::BackwardWeight(Context& ctx, MicroBatch& mb, const GqaSaved& s) const {
  const int64_t T = mb.T();
  o_.BackwardWeight(ctx, s.dy, s.o.Reshape({T, H_ * Q_}));
  ArenaScope scope(ctx.work);
  const RecipeOperand input = ctx.ForWeightGradients(s.x);
  q_.BackwardWeight(ctx, s.dq, input);
  k_.BackwardWeight(ctx, s.dk, input);
  v_.BackwardWeight(ctx, s.dv, input);
}

}  // namespace yardmaster
