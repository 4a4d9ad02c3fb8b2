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
//   backward input   dx = dy w (+ dx)           adjoint of forward in x
//   backward weight  dw = dy^T x + beta dw      adjoint in w
// A weight of three axes is one matrix per group of rows, `offsets` int64 [L + 1] in device memory
// (ops/grouped_gemm.h). Deterministic.
//
// Copies are made once where a matrix is multiplied twice: a weight's are the run's (WeightCopies), those of an
// activation or a gradient a module makes with WithCopies, both directions from one read. A product makes in
// `work` what it does not find; the bits are the same.
#pragma once

#include <optional>

#include "src/device/arena.h"
#include "src/ops/grouped_gemm.h"
#include "src/ops/quantize.h"

namespace yardmaster {

struct GemmRecipe {
  std::optional<QuantFormat> format;  // none: the operands' own precision
  // Rows go to experts in 8 bits (ops/wire_rows.h), and are kept as such for backward.
  bool quantised_dispatch = false;
  bool operator==(const GemmRecipe&) const = default;
};

// An activation or gradient [R, C].
struct RecipeOperand {
  RecipeOperand() = default;
  RecipeOperand(const Tensor& x) : values(x), R(x.defined() ? x.dim(0) : 0) {}  // a tensor is an operand without copies
  Tensor values;   // undefined: the copies are all there is
  Quantized rows;  // contracted along columns: of forward and input gradient
  Quantized cols;  // contracted along rows: of the weight gradient
  int64_t R = 0;

  // What its weight gradient needs, kept until then: its columns, or without them the values.
  RecipeOperand ForWeightGradient() const {
    RecipeOperand kept;
    kept.R = R;
    kept.cols = cols;
    if (!cols.defined()) kept.values = values;
    return kept;
  }
};

struct RecipeWeight {
  RecipeWeight() = default;
  RecipeWeight(const Tensor& w) : values(w) {}
  RecipeWeight(const Tensor& w, const WeightCopies& c) : values(w), copies(c) {}
  Tensor values;  // [N, K] or [L, N, K]; undefined: the copies are all there is
  WeightCopies copies;
};

// x and, with a recipe, the copies of it that are wanted: `rows` and `cols` are the arenas that hold them, null for
// none.
RecipeOperand WithCopies(const Stream& stream, const GemmRecipe& recipe, const Tensor& x, const Tensor& offsets,
                         Arena* rows, Arena* cols);
// Memory for them, for an op that makes copies on its way (ops/quantize_fused.h).
RecipeOperand CopiesOf(const GemmRecipe& recipe, int64_t R, int64_t C, const Tensor& offsets, Arena* rows, Arena* cols);

struct RecipeForwardArgs {
  RecipeOperand x;  // any ld without offsets
  RecipeWeight w;
  Tensor offsets = {};  // with a w of three axes
  Tensor y;
  Tensor addend = {};  // [R, N], may be y itself; without offsets only
  // Of products in the operands' own precision or in BF16. Other than kAuto, it also keeps every product of mxfp8, with
  // offsets and without, away from units that multiply it.
  GroupedGemmMode grouped_gemm = GroupedGemmMode::kAuto;
};
void RecipeForward(const Stream& stream, const GemmRecipe& recipe, const RecipeForwardArgs& args,
                   Arena& work);

struct RecipeBackwardInputArgs {
  RecipeOperand dy;
  RecipeWeight w;
  Tensor offsets = {};
  Tensor dx;
  bool accumulate = false;  // without offsets only
  GroupedGemmMode grouped_gemm = GroupedGemmMode::kAuto;
};
void RecipeBackwardInput(const Stream& stream, const GemmRecipe& recipe, const RecipeBackwardInputArgs& args,
                         Arena& work);

struct RecipeBackwardWeightArgs {
  RecipeOperand dy;
  RecipeOperand x;
  Tensor offsets = {};
  Tensor dw;
  double beta = 0;
  GroupedGemmMode grouped_gemm = GroupedGemmMode::kAuto;
  int free_sms = 0;  // with offsets: ops/grouped_gemm.h, ops/scaled_gemm.h
  // With beta 0: F64 [NumNormChunks(dw) * RecipeNormAddends], the addends of dw's norm.
  Tensor squares = {};
};
void RecipeBackwardWeight(const Stream& stream, const GemmRecipe& recipe,
                          const RecipeBackwardWeightArgs& args, Arena& work);
// Addends of the norm (ops/step_control.h) that RecipeBackwardWeight sums for each chunk of dw, on its way to memory;
// 0: none, the norm has to read dw. x: type of activations.
int64_t RecipeNormAddends(const Stream& stream, const GemmRecipe& recipe, DType x, const Tensor& dw,
                          GroupedGemmMode grouped_gemm);

}  // namespace yardmaster
