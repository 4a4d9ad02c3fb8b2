#include "src/nn/linear.h"

#include "src/ops/gemm.h"

namespace yardmaster {

Linear::Linear(ParameterList& list, const std::string& name, int64_t N, int64_t K, double init_std,
               DecayClass decay)
    : w_(list.Add(name, {N, K}, decay, InitKind::kNormal, init_std)) {}

void Linear::Forward(Context& ctx, const Tensor& x, const Tensor& y, const Tensor& addend) const {
  Gemm(ctx.stream,
       {.a = x, .b = w_->value, .d = y, .c = addend, .trans_b = true, .beta = addend.defined() ? 1.0 : 0.0});
}

void Linear::BackwardInput(Context& ctx, const Tensor& dy, const Tensor& dx, bool accumulate) const {
  Gemm(ctx.stream, {.a = dy, .b = w_->value, .d = dx, .beta = accumulate ? 1.0 : 0.0});
}

void Linear::BackwardWeight(Context& ctx, const Tensor& dy, const Tensor& x) const {
  Gemm(ctx.stream, {.a = dy, .b = x, .d = w_->grad, .trans_a = true, .beta = w_->TakeGradBeta()});
}

}  // namespace yardmaster
