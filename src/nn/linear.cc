#include "src/nn/linear.h"

#include "src/ops/recipe_gemm.h"

namespace yardmaster {

Linear::Linear(ParameterList& list, const std::string& name, int64_t N, int64_t K, double init_std,
               DecayClass decay)
    : w_(list.Add(name, {N, K}, decay, InitKind::kNormal, init_std)) {
  w_->in_recipe = true;
}

void Linear::Forward(Context& ctx, const RecipeOperand& x, const Tensor& y, const Tensor& addend) const {
  RecipeForward(ctx.stream, ctx.types.recipe,
                {.x = x, .w = w_->weight(), .y = y, .addend = addend, .grouped_gemm = ctx.how.grouped_gemm}, ctx.work);
}

void Linear::BackwardInput(Context& ctx, const RecipeOperand& dy, const Tensor& dx, bool accumulate) const {
  RecipeBackwardInput(ctx.stream, ctx.types.recipe,
                      {.dy = dy, .w = w_->weight(), .dx = dx, .accumulate = accumulate, .grouped_gemm = ctx.how.grouped_gemm},
                      ctx.work);
}

void Linear::BackwardWeight(Context& ctx, const RecipeOperand& dy, const RecipeOperand& x) const {
  const Parameter::GradWrite write = w_->TakeGradWrite();
  RecipeBackwardWeight(ctx.stream, ctx.types.recipe,
                       {.dy = dy,
                        .x = x,
                        .dw = w_->grad,
                        .beta = write.beta,
                        .grouped_gemm = ctx.how.grouped_gemm,
                        .squares = write.squares},
                       ctx.work);
}

}  // namespace yardmaster
