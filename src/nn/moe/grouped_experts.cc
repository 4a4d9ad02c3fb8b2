#include "src/nn/moe/grouped_experts.h"

#include "src/nn/swiglu_operand.h"
#include "src/ops/pad_rows.h"
#include "src/ops/recipe_gemm.h"
#include "src/ops/swiglu.h"
#include "src/ops/wire_rows.h"

namespace yardmaster {

GroupedExperts::GroupedExperts(ParameterList& list, const std::string& prefix, int64_t E, int64_t D,
                               int64_t F, int64_t begin, int64_t count, double init_std)
    : D_(D),
      F_(F),
      w1_(list.AddExpert(prefix + ".gate_up_proj", {E, 2 * F, D}, begin, count, init_std)),
      w2_(list.AddExpert(prefix + ".down_proj", {E, D, F}, begin, count, init_std)) {
  w1_->in_recipe = w2_->in_recipe = true;
}

RecipeOperand GroupedExperts::Received(Context& ctx, const Tensor& x, const Tensor& offsets, Arena* rows,
                                       Arena* cols) const {
  const GemmRecipe& recipe = ctx.types.recipe;
  if (!recipe.quantised_dispatch) return WithCopies(ctx.stream, recipe, x, offsets, rows, cols);
  const RecipeOperand operand = CopiesOf(recipe, x.dim(0), D_, offsets, rows, cols);
  UnpackRows(ctx.stream,
             {.format = *recipe.format,
              .D = D_,
              .wire = x,
              .offsets = offsets,
              .rows = operand.rows,
              .cols = operand.cols},
             ctx.work);
  return operand;
}

void GroupedExperts::Save(Context& ctx, MicroBatch& mb, const Tensor& x, const Tensor& w,
                          const Tensor& offsets, int64_t padded_rows, ExpertsSaved& saved) const {
  saved.x = x;
  saved.w = w;
  saved.offsets = offsets;
  saved.padded_rows = padded_rows;
  if (padded_rows > 0) {
    const int64_t L = offsets.dim(0) - 1;
    saved.ragged_x = x;
    saved.ragged_w = w;
    saved.ragged_offsets = offsets;
    saved.x = mb.saved->Allocate("experts/padded x", x.dtype(), {L * padded_rows, x.cols()});
    saved.w = mb.saved->Allocate("experts/padded w", w.dtype(), {L * padded_rows});
    saved.offsets = mb.saved->Allocate("experts/padded offsets", DType::kI64, {L + 1});
    PaddedOffsets(ctx.stream, padded_rows, saved.offsets);
  }
  saved.gate_up = mb.saved->Allocate("experts/gate_up", ctx.types.compute, {saved.x.dim(0), 2 * F_});
}

void GroupedExperts::Forward(Context& ctx, MicroBatch& /*mb*/, const Tensor& y, ExpertsSaved& saved) const {
  ArenaScope scope(ctx.work);
  const int64_t rows = saved.x.dim(0);
  const Tensor out = saved.padded_rows == 0
                         ? y
                         : ctx.work.Allocate("experts/padded y", ctx.types.compute, {rows, y.cols()});
  GateUp(ctx, saved);
  RecipeForward(ctx.stream, ctx.types.recipe,
                {.x = SwigluOperand(ctx, {.gate_up = saved.gate_up, .w = saved.w, .offsets = saved.offsets}),
                 .w = w2_->weight(),
                 .offsets = saved.offsets,
                 .y = out,
                 .grouped_gemm = ctx.how.grouped_gemm},
                ctx.work);
  if (saved.padded_rows > 0)
    UnpadRows(ctx.stream, {.ragged = y, .offsets = saved.ragged_offsets, .padded = out});
}

void GroupedExperts::GateUp(Context& ctx, const ExpertsSaved& saved) const {
  if (saved.padded_rows > 0) {
    PadRows(ctx.stream, {.ragged = saved.ragged_x, .offsets = saved.ragged_offsets, .padded = saved.x});
    PadRows(ctx.stream, {.ragged = saved.ragged_w, .offsets = saved.ragged_offsets, .padded = saved.w});
  }
  ArenaScope scope(ctx.work);
  RecipeForward(ctx.stream, ctx.types.recipe,
                {.x = Received(ctx, saved.x, saved.offsets, &ctx.work, nullptr),
                 .w = w1_->weight(),
                 .offsets = saved.offsets,
                 .y = saved.gate_up,
                 .grouped_gemm = ctx.how.grouped_gemm},
                ctx.work);
}

void GroupedExperts::BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dy, const Tensor& dw,
                                   const Tensor& dx, ExpertsSaved& saved) const {
  const int64_t rows = saved.x.dim(0), D = D_;
  const bool padded = saved.padded_rows > 0;
  ArenaScope scope(ctx.work);
  Arena& values = ctx.ValuesUntilWeights(*mb.saved);
  const Tensor dy_in = padded ? values.Allocate("experts/padded dy", dy.dtype(), {rows, D}) : dy;
  const Tensor act = values.Allocate("experts/act", ctx.types.compute, {rows, F_});
  const Tensor dgate_up = values.Allocate("experts/dgate_up", ctx.types.compute, {rows, 2 * F_});
  const Tensor dact = ctx.work.Allocate("experts/dact", ctx.types.compute, {rows, F_});
  const Tensor dx_out = padded ? ctx.work.Allocate("experts/padded dx", dx.dtype(), {rows, D}) : dx;
  const Tensor dw_out = padded ? ctx.work.Allocate("experts/padded dw", dw.dtype(), {rows}) : dw;
  if (padded) PadRows(ctx.stream, {.ragged = dy, .offsets = saved.ragged_offsets, .padded = dy_in});
  {
    ArenaScope copies(ctx.work);
    saved.dy = Received(ctx, dy_in, saved.offsets, &ctx.work, mb.saved);
    RecipeBackwardInput(ctx.stream, ctx.types.recipe,
                        {.dy = saved.dy,
                         .w = w2_->weight(),
                         .offsets = saved.offsets,
                         .dx = dact,
                         .grouped_gemm = ctx.how.grouped_gemm},
                        ctx.work);
  }
  SwigluBackward(ctx.stream, {.dact = dact,
                              .gate_up = saved.gate_up,
                              .w = saved.w,
                              .num_rows = NumRows(saved.offsets),
                              .dgate_up = dgate_up,
                              .dw = dw_out,
                              .act = act});
  saved.act = WithCopies(ctx.stream, ctx.types.recipe, act, saved.offsets, nullptr, mb.saved);
  saved.dgate_up = ctx.ForBoth(dgate_up, *mb.saved, saved.offsets);
  RecipeBackwardInput(ctx.stream, ctx.types.recipe,
                      {.dy = saved.dgate_up,
                       .w = w1_->weight(),
                       .offsets = saved.offsets,
                       .dx = dx_out,
                       .grouped_gemm = ctx.how.grouped_gemm},
                      ctx.work);
  if (!padded) return;
  UnpadRows(ctx.stream, {.ragged = dx, .offsets = saved.ragged_offsets, .padded = dx_out});
  UnpadRows(ctx.stream, {.ragged = dw, .offsets = saved.ragged_offsets, .padded = dw_out});
}

void GroupedExperts::BackwardWeight(Context& ctx, MicroBatch& /*mb*/, const ExpertsSaved& saved,
                                    int free_sms) const {
  const auto weight = [&](const RecipeOperand& dy, const RecipeOperand& x, Parameter* w, int free) {
    const Parameter::GradWrite write = w->TakeGradWrite();
    RecipeBackwardWeight(ctx.stream, ctx.types.recipe,
                         {.dy = dy,
                          .x = x,
                          .offsets = saved.offsets,
                          .dw = w->grad,
                          .beta = write.beta,
                          .grouped_gemm = ctx.how.grouped_gemm,
                          .free_sms = free,
                          .squares = write.squares},
                         ctx.work);
  };
  weight(saved.dy, saved.act, w2_, free_sms);
  ArenaScope scope(ctx.work);
  weight(saved.dgate_up, Received(ctx, saved.x, saved.offsets, nullptr, &ctx.work), w1_, 0);
}

}  // namespace yardmaster
