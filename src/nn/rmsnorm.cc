#include "src/nn/rmsnorm.h"

#include "src/ops/rmsnorm.h"

namespace yardmaster {

RmsNorm::RmsNorm(ParameterList& list, const std::string& name, int64_t D, double eps)
    : w_(list.Add(name, {D}, DecayClass::kNorm, InitKind::kOnes, 0)), eps_(eps) {}

void RmsNorm::Forward(Context& ctx, MicroBatch& mb, const Tensor& x, const Tensor& y,
                      RmsNormSaved& saved) const {
  saved.x = x;
  saved.rstd = mb.saved->Allocate("rmsnorm/rstd", ctx.types.accum, {x.rows()});
  Again(ctx, y, saved);
}

void RmsNorm::Again(Context& ctx, const Tensor& y, const RmsNormSaved& saved) const {
  RmsNormForward(ctx.stream, {.x = saved.x, .w = w_->value, .eps = eps_, .y = y, .rstd = saved.rstd});
}

void RmsNorm::BackwardInput(Context& ctx, MicroBatch& /*mb*/, const Tensor& dy, const Tensor& dx,
                            const RmsNormSaved& saved, const Tensor& dresidual) const {
  RmsNormBackward(ctx.stream,
                  {.dy = dy,
                   .h = saved.x,
                   .w = w_->value,
                   .rstd = saved.rstd,
                   .dresidual = dresidual,
                   .dh = dx,
                   .dw = w_->grad,
                   .beta_w = w_->TakeGradBeta()},
                  ctx.work);
}

}  // namespace yardmaster
