// File: src/nn/moe/dispatched_rows.h
//
// What dispatch carries: rows in the compute type, or with GemmRecipe::quantised_dispatch rows of bytes
// (ops/wire_rows.h), for which a token is quantised once. Combine carries the compute type.
#pragma once

#include "src/nn/context.h"
#include "src/ops/wire_rows.h"

namespace yardmaster {

// A window or send buffer for `rows` rows of D values.
inline Tensor AllocateDispatched(const Context& ctx, Arena& arena, const char* what, int64_t rows, int64_t D) {
  const GemmRecipe& recipe = ctx.types.recipe;
  return recipe.quantised_dispatch ? arena.Allocate(what, DType::kU8, {rows, WireBytes(*recipe.format, D)})
                                   : arena.Allocate(what, ctx.types.compute, {rows, D});
}

// x_TD as it is carried: x itself, or packed in `arena`, which must keep it until the rows are on their way.
inline Tensor PackForDispatch(Context& ctx, const Tensor& x, Arena& arena) {
  if (!ctx.types.recipe.quantised_dispatch) return x;
  const Tensor wire = AllocateDispatched(ctx, arena, "moe/wire", x.dim(0), x.dim(1));
  PackRows(ctx.stream, {.format = *ctx.types.recipe.format, .x = x, .wire = wire}, ctx.work);
  return wire;
}

}  // namespace yardmaster
