#include "src/nn/mlp.h"

#include "src/nn/swiglu_operand.h"
#include "src/ops/swiglu.h"

namespace yardmaster {

Mlp::Mlp(ParameterList& list, const std::string& prefix, int64_t D, int64_t I, double init_std)
    : I_(I),
      gate_up_(list, prefix + ".gate_up_proj", 2 * I, D, init_std),
      down_(list, prefix + ".down_proj.weight", D, I, init_std) {}

void Mlp::Forward(Context& ctx, MicroBatch& mb, const RecipeOperand& x, const Tensor& y, MlpSaved& saved,
                  const Tensor& addend) const {
  const int64_t T = x.R;
  saved.x = x.ForWeightGradient();
  saved.gate_up = mb.saved->Allocate("mlp/gate_up", ctx.types.compute, {T, 2 * I_});
  ArenaScope scope(ctx.work);
  gate_up_.Forward(ctx, x, saved.gate_up);
  down_.Forward(ctx, SwigluOperand(ctx, {.gate_up = saved.gate_up}), y, addend);
}

void Mlp::BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dy, const Tensor& dx,
                        MlpSaved& saved) const {
  const int64_t T = dy.rows();
  ArenaScope scope(ctx.work);
  Arena& values = ctx.ValuesUntilWeights(*mb.saved);
  const Tensor act = values.Allocate("mlp/act", ctx.types.compute, {T, I_});
  const Tensor dgate_up = values.Allocate("mlp/dgate_up", ctx.types.compute, {T, 2 * I_});
  const Tensor dact = ctx.work.Allocate("mlp/dact", ctx.types.compute, {T, I_});
  saved.dy = ctx.ForBoth(dy, *mb.saved);
  down_.BackwardInput(ctx, saved.dy, dact);
  SwigluBackward(ctx.stream, {.dact = dact, .gate_up = saved.gate_up, .dgate_up = dgate_up, .act = act});
  saved.act = WithCopies(ctx.stream, ctx.types.recipe, act, {}, nullptr, mb.saved);
  saved.dgate_up = ctx.ForBoth(dgate_up, *mb.saved);
  gate_up_.BackwardInput(ctx, saved.dgate_up, dx);
}

void Mlp::BackwardWeight(Context& ctx, MicroBatch& /*mb*/, const MlpSaved& saved) const {
  down_.BackwardWeight(ctx, saved.dy, saved.act);
  gate_up_.BackwardWeight(ctx, saved.dgate_up, saved.x);
}

}  // namespace yardmaster
