// File: src/nn/mlp.h
//
// SwiGLU MLP, for dense layers and for the shared experts (one MLP of their summed width I):
//   y = down(silu(gate(x)) * up(x)) (+ addend), gate and up fused in one matrix [2I, D], gate first.
// Saved: the projection before the activation. The activation is computed again in backward, in the pass that
// needs it.
#pragma once

#include <string>

#include "src/nn/linear.h"

namespace yardmaster {

struct MlpSaved {
  RecipeOperand x;  // [T, D], the caller's
  Tensor gate_up;  // [T, 2I]
  // Left by BackwardInput for BackwardWeight; with a recipe their copies alone.
  RecipeOperand dy;        // [T, D], the caller's; without a recipe it must stay until then
  RecipeOperand act;       // [T, I]
  RecipeOperand dgate_up;  // [T, 2I]
};

class Mlp {
 public:
  Mlp() = default;
  // Parameters `prefix`.gate_up_proj [2I, D] and `prefix`.down_proj.weight [D, I].
  Mlp(ParameterList& list, const std::string& prefix, int64_t D, int64_t I, double init_std);

  void Forward(Context& ctx, MicroBatch& mb, const RecipeOperand& x, const Tensor& y, MlpSaved& saved,
               const Tensor& addend = {}) const;
  // dact = dy Wd;  dgate_up by ops/swiglu.h;  dx = dgate_up Wgu.
  void BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dy, const Tensor& dx, MlpSaved& saved) const;
  // dWd = dy^T act;  dWgu = dgate_up^T x.
  void BackwardWeight(Context& ctx, MicroBatch& mb, const MlpSaved& saved) const;

 private:
  int64_t I_ = 0;
  Linear gate_up_, down_;
};

}  // namespace yardmaster
