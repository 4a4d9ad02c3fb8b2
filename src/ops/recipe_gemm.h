// File: src/ops/recipe_gemm.h
//
// The matrix products of linear layers and experts in the precision of the run's recipe. This is the one
// place where a recipe takes effect: modules hand over high-precision operands, what is quantised, how and
// along which axis is decided here.
//   none       Gemm and GroupedGemm on the operands as they are
//   fp8_block  x and dy in 1x128 along the contraction (columns in forward and input gradient, rows in the
//              weight gradient), w in 128x128
//   mxfp8      x, dy and w in runs of 32 along the contraction
// Then ScaledGemm / ScaledGemmWeight (ops/scaled_gemm.h) multiply.
// Results, addends and weight gradients are never quantised; weight gradients are summed in the main
// gradient's type.
//
//   forward          y = x w^T (+ c)            x [R, K], w [N, K] or [L, N, K], y [R, N]
//   backward input   dx = dy w (+ dx)           adjoint of forward in x, with dy and w quantised anew
//   backward weight  dw = dy^T x + beta dw      adjoint in w
// A weight of three axes is one matrix per group of rows, `offsets` int64 [L + 1] in device memory
// (ops/grouped_gemm.h). Deterministic. `work` holds quantised copies within the call.
#pragma once

#include <optional>

#include "src/device/arena.h"
#include "src/ops/grouped_gemm.h"
#include "src/ops/quantize.h"

namespace yardmaster {

struct GemmRecipe {
  std::optional<QuantFormat> format;  // none: the operands' own precision
  bool operator==(const GemmRecipe&) const = default;
};

struct RecipeForwardArgs {
  Tensor x;  // any ld without offsets
  Tensor w;
  Tensor offsets = {};  // with a w of three axes
  Tensor y;
  Tensor addend = {};  // [R, N], may be y itself; without offsets only
  // Of products in the operands' own precision or in BF16.
  GroupedGemmMode grouped_gemm = GroupedGemmMode::kAuto;
};
void RecipeForward(const Stream& stream, const GemmRecipe& recipe, const RecipeForwardArgs& args,
                   Arena& work);

struct RecipeBackwardInputArgs {
  Tensor dy;
  Tensor w;
  Tensor offsets = {};
  Tensor dx;
  bool accumulate = false;  // without offsets only
  GroupedGemmMode grouped_gemm = GroupedGemmMode::kAuto;
};
void RecipeBackwardInput(const Stream& stream, const GemmRecipe& recipe, const RecipeBackwardInputArgs& args,
                         Arena& work);

struct RecipeBackwardWeightArgs {
  Tensor dy;
  Tensor x;
  Tensor offsets = {};
  Tensor dw;
  double beta = 0;
  GroupedGemmMode grouped_gemm = GroupedGemmMode::kAuto;
};
void RecipeBackwardWeight(const Stream& stream, const GemmRecipe& recipe,
                          const RecipeBackwardWeightArgs& args, Arena& work);

}  // namespace yardmaster
