// File: src/nn/swiglu_operand.h
//
// The weighted SwiGLU activation (ops/swiglu.h) as an operand of the down projection. With a recipe it is quantised
// as it is made and never stored in high precision (ops/quantize_fused.h).
#pragma once

#include "src/nn/context.h"
#include "src/ops/quantize_fused.h"
#include "src/ops/swiglu.h"

namespace yardmaster {

struct SwigluOperandArgs {
  Tensor gate_up;       // [R, 2F]
  Tensor w = {};        // [R] in the accumulator type, or undefined
  Tensor offsets = {};  // int64 [L + 1]: rows beyond the last group are not touched
};

// [R, F], in ctx.work within the caller's scope.
inline RecipeOperand SwigluOperand(Context& ctx, const SwigluOperandArgs& g) {
  const int64_t R = g.gate_up.dim(0), F = g.gate_up.dim(1) / 2;
  if (!ctx.types.recipe.format) {
    const Tensor act = ctx.work.Allocate("swiglu/act", ctx.types.compute, {R, F});
    SwigluForward(ctx.stream, {.gate_up = g.gate_up, .w = g.w, .num_rows = NumRows(g.offsets), .act = act});
    return act;
  }
  const RecipeOperand act = CopiesOf(ctx.types.recipe, R, F, g.offsets, &ctx.work, nullptr);
  QuantizeSwiglu(ctx.stream,
                 {.format = *ctx.types.recipe.format,
                  .gate_up = g.gate_up,
                  .w = g.w,
                  .offsets = g.offsets,
                  .rows = act.rows},
                 ctx.work);
  return act;
}

}  // namespace yardmaster
