// File: src/nn/mla.h
//
// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1), in its training form: keys and
// values are expanded from the latent and attention runs over H full heads.
//   q      = Wq_b norm(Wq_a x)    or  Wq x  when q_lora_rank == 0
//   kv_a   = Wkv_a x = [latent | k_rope];   kv = Wkv_b norm(latent) = [k_nope | v] by head
//   q, k   = rotary on their positional parts, k_rope shared by all heads (ops/mla_rope_pack.h)
//   y      = Wo attention(q, k, v) (+ residual)
// N = qk_nope_head_dim, P = qk_rope_head_dim, Q = N + P, V = v_head_dim, A = q_lora_rank, C = kv_lora_rank.
#pragma once

#include <string>

#include "src/config/model_config.h"
#include "src/nn/linear.h"
#include "src/nn/rmsnorm.h"

namespace yardmaster {

struct MlaSaved {
  RecipeOperand x;  // [T, D], the caller's
  Tensor q_a;       // [T, A]
  RmsNormSaved q_norm;
  RecipeOperand q_n;  // [T, A], q_a normalised; with Recompute::kNorms of its pass alone, as kv_n
  Tensor kv_a;        // [T, C + P]
  RmsNormSaved kv_norm;
  RecipeOperand kv_n;  // [T, C]
  Tensor q, k;  // [T, H, Q], rotated; with Recompute::kProjections of its pass alone, as v
  Tensor v;     // [T, H, V]
  Tensor o;     // [T, H, V]
  Tensor lse;   // [B, H, S], accumulator type
  // Left by BackwardInput for BackwardWeight; with a recipe their copies alone.
  RecipeOperand dy;     // [T, D], the caller's; without a recipe it must stay until then
  RecipeOperand dq;     // [T, H Q]
  RecipeOperand dq_a;   // [T, A]
  RecipeOperand dkv;    // [T, H (N + V)]
  RecipeOperand dkv_a;  // [T, C + P]
};

class Mla {
 public:
  Mla(ParameterList& list, const std::string& prefix, const ModelConfig& config,
      bool attend_across_documents);
  // [max_positions, P/2, 2], shared by all layers (nn/rope.h).
  void set_rope_table(const Tensor& table) { rope_table_ = table; }

  void Forward(Context& ctx, MicroBatch& mb, const RecipeOperand& x, const Tensor& y, MlaSaved& saved,
               const Tensor& residual) const;
  // The chain of the forward's steps in reverse: every linear's dx = dy W, norms, rotation and attention by
  // their ops.
  void BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dy, const Tensor& dx, MlaSaved& saved) const;
  // dW = dy^T x of each projection.
  void BackwardWeight(Context& ctx, MicroBatch& mb, const MlaSaved& saved) const;

 private:
  void AllocateHeads(const Context& ctx, int64_t T, Arena& arena, MlaSaved& s) const;
  // s.q from `queries`, what Wq_b multiplies; s.k, s.v from `latent`, what Wkv_b does.
  void Heads(Context& ctx, const MicroBatch& mb, const RecipeOperand& queries, const RecipeOperand& latent,
             MlaSaved& s) const;

  int64_t H_, N_, P_, Q_, V_, A_, C_;
  double scale_;
  bool across_documents_;
  Linear q_a_, q_b_, kv_a_, kv_b_, o_;  // without low rank q_b_ is Wq, and q_a_ is unused
  RmsNorm q_norm_, kv_norm_;
  Tensor rope_table_;
};

}  // namespace yardmaster
