// File: src/nn/linear.h
//
// y_TN = x_TK W_NK^T (+ addend).  Adjoint: dx = dy W;  dW = dy^T x.
// In the run's recipe (ops/recipe_gemm.h); an operand that is multiplied twice comes with its copies. The input that
// backward needs belongs to the caller, who knows whether it is saved anyway.
#pragma once

#include <string>

#include "src/nn/context.h"

namespace yardmaster {

class Linear {
 public:
  Linear() = default;
  // W is `name` [N, K].
  Linear(ParameterList& list, const std::string& name, int64_t N, int64_t K, double init_std,
         DecayClass decay = DecayClass::kMatrix);

  // addend [T, N], undefined: none; it may be y itself. A residual stream goes in here: it costs no pass of
  // its own.
  void Forward(Context& ctx, const RecipeOperand& x, const Tensor& y, const Tensor& addend = {}) const;
  // dx = dy W (+ dx when accumulate).
  void BackwardInput(Context& ctx, const RecipeOperand& dy, const Tensor& dx, bool accumulate = false) const;
  void BackwardWeight(Context& ctx, const RecipeOperand& dy, const RecipeOperand& x) const;

  Parameter* weight() const { return w_; }

 private:
  Parameter* w_ = nullptr;  // [N, K]
};

}  // namespace yardmaster
