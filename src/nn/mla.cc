#include "src/nn/mla.h"

#include "src/nn/rope.h"
#include "src/ops/attention.h"
#include "src/ops/mla_rope_pack.h"

namespace yardmaster {
namespace {

// The norms of the latents have an epsilon of their own, fixed in DeepSeek's and in Hugging Face's code.
constexpr double kLatentEps = 1e-6;

}  // namespace

Mla::Mla(ParameterList& list, const std::string& prefix, const ModelConfig& c, bool attend_across_documents)
    : H_(c.num_attention_heads),
      N_(c.qk_nope_head_dim),
      P_(c.qk_rope_head_dim),
      Q_(c.qk_head_dim()),
      V_(c.v_head_dim),
      A_(c.q_lora_rank),
      C_(c.kv_lora_rank),
      scale_(AttentionScale(c)),
      across_documents_(attend_across_documents) {
  const int64_t D = c.hidden_size;
  const double std = c.initializer_range;
  if (A_ > 0) {
    q_a_ = Linear(list, prefix + ".q_a_proj.weight", A_, D, std);
    q_norm_ = RmsNorm(list, prefix + ".q_a_layernorm.weight", A_, kLatentEps);
    q_b_ = Linear(list, prefix + ".q_b_proj.weight", H_ * Q_, A_, std);
  } else {
    q_b_ = Linear(list, prefix + ".q_proj.weight", H_ * Q_, D, std);
  }
  kv_a_ = Linear(list, prefix + ".kv_a_proj_with_mqa.weight", C_ + P_, D, std);
  kv_norm_ = RmsNorm(list, prefix + ".kv_a_layernorm.weight", C_, kLatentEps);
  kv_b_ = Linear(list, prefix + ".kv_b_proj.weight", H_ * (N_ + V_), C_, std);
  o_ = Linear(list, prefix + ".o_proj.weight", D, H_ * V_, std);
}

void Mla::Forward(Context& ctx, MicroBatch& mb, const RecipeOperand& x, const Tensor& y, MlaSaved& s,
                  const Tensor& residual) const {
  const int64_t T = mb.T(), B = mb.B, S = mb.S;
  const DType type = ctx.types.compute;
  ArenaScope scope(ctx.work);
  Arena& latents = ctx.LinearInputs(mb);
  s.x = x.ForWeightGradient();
  s.kv_a = mb.saved->Allocate("mla/kv_a", type, {T, C_ + P_});
  const Tensor kv_n = latents.Allocate("mla/kv_n", type, {T, C_});
  Tensor q_n;
  if (A_ > 0) {
    s.q_a = mb.saved->Allocate("mla/q_a", type, {T, A_});
    q_n = latents.Allocate("mla/q_n", type, {T, A_});
  }
  s.o = mb.saved->Allocate("mla/o", type, {T, H_, V_});
  s.lse = mb.saved->Allocate("mla/lse", ctx.types.accum, {B, H_, S});
  AllocateHeads(ctx, T, ctx.how.recompute >= Recompute::kProjections ? ctx.work : *mb.saved, s);
  {
    ArenaScope inputs(ctx.work);
    const RecipeOperand input = ctx.ForProducts(x);  // of queries, keys and values
    RecipeOperand queries = input;
    if (A_ > 0) {
      q_a_.Forward(ctx, input, s.q_a);
      q_norm_.Forward(ctx, mb, s.q_a, q_n, s.q_norm);
      queries = ctx.KeptInput(q_n, mb);
      s.q_n = queries.ForWeightGradient();
    }
    kv_a_.Forward(ctx, input, s.kv_a);
    kv_norm_.Forward(ctx, mb, s.kv_a.Cols(0, C_), kv_n, s.kv_norm);
    const RecipeOperand latent = ctx.KeptInput(kv_n, mb);
    s.kv_n = latent.ForWeightGradient();
    Heads(ctx, mb, queries, latent, s);
  }
  AttentionForward(ctx.stream,
                   {.q = s.q.Reshape({B, S, H_, Q_}),
                    .k = s.k.Reshape({B, S, H_, Q_}),
                    .v = s.v.Reshape({B, S, H_, V_}),
                    .scale = scale_,
                    .document_start = mb.DocumentStartUnless(across_documents_),
                    .o = s.o.Reshape({B, S, H_, V_}),
                    .lse = s.lse,
                    .mode = ctx.how.attention},
                   ctx.work);
  o_.Forward(ctx, s.o.Reshape({T, H_ * V_}), y, residual);
}

void Mla::AllocateHeads(const Context& ctx, int64_t T, Arena& arena, MlaSaved& s) const {
  s.q = arena.Allocate("mla/q", ctx.types.compute, {T, H_, Q_});
  s.k = arena.Allocate("mla/k", ctx.types.compute, {T, H_, Q_});
  s.v = arena.Allocate("mla/v", ctx.types.compute, {T, H_, V_});
}

void Mla::Heads(Context& ctx, const MicroBatch& mb, const RecipeOperand& queries, const RecipeOperand& latent,
                MlaSaved& s) const {
  const int64_t T = mb.T();
  ArenaScope scope(ctx.work);
  const Tensor kv = ctx.work.Allocate("mla/kv", ctx.types.compute, {T, H_, N_ + V_});
  q_b_.Forward(ctx, queries, s.q.Reshape({T, H_ * Q_}));
  kv_b_.Forward(ctx, latent, kv.Reshape({T, H_ * (N_ + V_)}));
  MlaRopePackForward(ctx.stream, {.q = s.q,
                                  .kv = kv,
                                  .k_rope = s.kv_a.Cols(C_, C_ + P_),
                                  .positions = mb.positions,
                                  .table = rope_table_,
                                  .q_out = s.q,
                                  .k_out = s.k,
                                  .v_out = s.v});
}

void Mla::BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dy, const Tensor& dx, MlaSaved& s) const {
  const int64_t T = mb.T(), B = mb.B, S = mb.S;
  const DType type = ctx.types.compute;
  if (ctx.how.recompute >= Recompute::kNorms) {
    s.kv_n = mb.saved->Allocate("mla/kv_n", type, {T, C_});
    kv_norm_.Again(ctx, s.kv_n.values, s.kv_norm);
    if (A_ > 0) {
      s.q_n = mb.saved->Allocate("mla/q_n", type, {T, A_});
      q_norm_.Again(ctx, s.q_n.values, s.q_norm);
    }
  }
  ArenaScope scope(ctx.work);
  Arena& values = ctx.ValuesUntilWeights(*mb.saved);
  const Tensor dq = values.Allocate("mla/dq", type, {T, H_, Q_});
  const Tensor dkv = values.Allocate("mla/dkv", type, {T, H_, N_ + V_});
  const Tensor dkv_a = values.Allocate("mla/dkv_a", type, {T, C_ + P_});
  const Tensor dq_a = A_ > 0 ? values.Allocate("mla/dq_a", type, {T, A_}) : Tensor();
  // Each gradient's copies: rows until the product that follows, columns until BackwardWeight.
  const auto both = [&](const Tensor& gradient) {
    return ctx.ForBoth(gradient.Reshape({T, gradient.elements() / T}), *mb.saved);
  };
  {
    ArenaScope heads(ctx.work);
    if (ctx.how.recompute >= Recompute::kProjections) {
      AllocateHeads(ctx, T, ctx.work, s);
      Heads(ctx, mb, A_ > 0 ? s.q_n : s.x, s.kv_n, s);
    }
    const Tensor do_ = ctx.work.Allocate("mla/do", type, {T, H_, V_});
    const Tensor dk = ctx.work.Allocate("mla/dk", type, {T, H_, Q_});
    const Tensor dv = ctx.work.Allocate("mla/dv", type, {T, H_, V_});
    s.dy = both(dy);
    o_.BackwardInput(ctx, s.dy, do_.Reshape({T, H_ * V_}));
    const AttentionArgs forward{.q = s.q.Reshape({B, S, H_, Q_}),
                                .k = s.k.Reshape({B, S, H_, Q_}),
                                .v = s.v.Reshape({B, S, H_, V_}),
                                .scale = scale_,
                                .document_start = mb.DocumentStartUnless(across_documents_),
                                .o = s.o.Reshape({B, S, H_, V_}),
                                .lse = s.lse,
                                .mode = ctx.how.attention,
                                .max_workspace = ctx.how.attention_workspace};
    AttentionBackward(ctx.stream,
                      {.forward = forward,
                       .do_ = do_.Reshape({B, S, H_, V_}),
                       .dq = dq.Reshape({B, S, H_, Q_}),
                       .dk = dk.Reshape({B, S, H_, Q_}),
                       .dv = dv.Reshape({B, S, H_, V_}),
                       .deterministic = ctx.how.deterministic},
                      ctx.work);
    MlaRopePackBackward(ctx.stream, {.dq_out = dq,
                                     .dk_out = dk,
                                     .dv_out = dv,
                                     .positions = mb.positions,
                                     .table = rope_table_,
                                     .dq = dq,
                                     .dkv = dkv,
                                     .dk_rope = dkv_a.Cols(C_, C_ + P_)});
  }
  {
    ArenaScope latent(ctx.work);
    const Tensor dkv_n = ctx.work.Allocate("mla/dkv_n", type, {T, C_});
    s.dkv = both(dkv);
    kv_b_.BackwardInput(ctx, s.dkv, dkv_n);
    kv_norm_.BackwardInput(ctx, mb, dkv_n, dkv_a.Cols(0, C_), s.kv_norm);
    s.dkv_a = both(dkv_a);
    kv_a_.BackwardInput(ctx, s.dkv_a, dx);
  }
  s.dq = both(dq);
  if (A_ > 0) {
    const Tensor dq_n = ctx.work.Allocate("mla/dq_n", type, {T, A_});
    q_b_.BackwardInput(ctx, s.dq, dq_n);
    q_norm_.BackwardInput(ctx, mb, dq_n, dq_a, s.q_norm);
    s.dq_a = both(dq_a);
    q_a_.BackwardInput(ctx, s.dq_a, dx, /*accumulate=*/true);
  } else {
    q_b_.BackwardInput(ctx, s.dq, dx, /*accumulate=*/true);
  }
}

void Mla::BackwardWeight(Context& ctx, MicroBatch& mb, const MlaSaved& s) const {
  const int64_t T = mb.T();
  o_.BackwardWeight(ctx, s.dy, s.o.Reshape({T, H_ * V_}));
  kv_b_.BackwardWeight(ctx, s.dkv, s.kv_n);
  ArenaScope scope(ctx.work);
  const RecipeOperand input = ctx.ForWeightGradients(s.x);
  kv_a_.BackwardWeight(ctx, s.dkv_a, input);
  q_b_.BackwardWeight(ctx, s.dq, A_ > 0 ? s.q_n : input);
  if (A_ > 0) q_a_.BackwardWeight(ctx, s.dq_a, input);
}

}  // namespace yardmaster
