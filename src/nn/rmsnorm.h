// File: src/nn/rmsnorm.h
//
// RMSNorm (ops/rmsnorm.h): y = x * rstd * w. The weight's gradient needs the same pass over dy and x as dx,
// and is 1/D of a matrix: BackwardInput makes both, and there is no BackwardWeight.
#pragma once

#include <string>

#include "src/nn/context.h"

namespace yardmaster {

struct RmsNormSaved {
  Tensor x;     // [T, D], the caller's: what was normalised
  Tensor rstd;  // [T], accumulator type
};

class RmsNorm {
 public:
  RmsNorm() = default;
  RmsNorm(ParameterList& list, const std::string& name, int64_t D, double eps);

  // x [T, D] with ld >= D; y [T, D].
  void Forward(Context& ctx, MicroBatch& mb, const Tensor& x, const Tensor& y, RmsNormSaved& saved) const;
  // The same y once more, and the same rstd in its place.
  void Again(Context& ctx, const Tensor& y, const RmsNormSaved& saved) const;
  // dx = rstd * (g - n * mean(g n)) + dresidual with g = dy * w, n = x * rstd;  dw = sum_t dy * n.
  // dresidual [T, D]: the gradient that passes the norm by on the residual stream; undefined: none.
  void BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dy, const Tensor& dx,
                     const RmsNormSaved& saved, const Tensor& dresidual = {}) const;

 private:
  Parameter* w_ = nullptr;  // [D]
  double eps_ = 0;
};

}  // namespace yardmaster
