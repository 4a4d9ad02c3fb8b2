// File: src/nn/gqa.h
//
// Grouped-query attention (Ainslie et al., arXiv 2305.13245): G key and value heads, each for H / G query heads.
//   q = rope(norm(Wq x));  k = rope(norm(Wk x));  v = Wv x     norm by head, in qwen3_moe; mixtral has none
//   y = Wo attention(q, k, v) (+ residual)
// Q = head_dim, the width of queries, keys and values; all of it is rotated (ops/gqa_rope.h).
#pragma once

#include <string>

#include "src/config/model_config.h"
#include "src/nn/linear.h"
#include "src/nn/rmsnorm.h"

namespace yardmaster {

struct GqaSaved {
  RecipeOperand x;              // [T, D], the caller's
  Tensor q_raw, k_raw;          // [T * H, Q], [T * G, Q] before their norms; undefined without
  RmsNormSaved q_norm, k_norm;
  Tensor q, k;                  // [T, H, Q], [T, G, Q], normalised and rotated
  Tensor v;                     // [T, G, Q]
  Tensor o;                     // [T, H, Q]
  Tensor lse;                   // [B, H, S], accumulator type
  // Left by BackwardInput for BackwardWeight; with a recipe their copies alone.
  RecipeOperand dy;             // [T, D], the caller's; without a recipe it must stay until then
  RecipeOperand dq, dk, dv;     // [T, .]: gradients of the projections
};

class Gqa {
 public:
  // Parameters `prefix`.{q,k,v,o}_proj.weight and, with norms, `prefix`.{q,k}_norm.weight [Q].
  Gqa(ParameterList& list, const std::string& prefix, const ModelConfig& config, bool attend_across_documents);
  // [max_positions, Q/2, 2], shared by all layers (nn/rope.h).
  void set_rope_table(const Tensor& table) { rope_table_ = table; }

  void Forward(Context& ctx, MicroBatch& mb, const RecipeOperand& x, const Tensor& y, GqaSaved& saved,
               const Tensor& residual) const;
  // dy Wo, attention, the rotation back, norms, then dx = dq Wq + dk Wk + dv Wv.
  void BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dy, const Tensor& dx, GqaSaved& saved) const;
  // dW = dy^T x of each projection.
  void BackwardWeight(Context& ctx, MicroBatch& mb, const GqaSaved& saved) const;

 private:
  int64_t H_, G_, Q_;
  double scale_;
  bool norms_, across_documents_;
  Linear q_, k_, v_, o_;
  RmsNorm q_norm_, k_norm_;
  Tensor rope_table_;
};

}  // namespace yardmaster
