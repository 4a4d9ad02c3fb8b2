#include "src/ops/recipe_gemm.h"

#include "src/ops/gemm.h"
#include "src/ops/scaled_gemm.h"

namespace yardmaster {
namespace {

// A matrix as [L, N, K].
Tensor Grouped(const Tensor& w) { return w.shape().rank() == 3 ? w : w.Reshape({1, w.dim(0), w.dim(1)}); }

Quantized RowsOf(const Stream& stream, const GemmRecipe& recipe, const RecipeOperand& x, const Tensor& offsets,
                 Arena& work) {
  return x.rows.defined() ? x.rows : WithCopies(stream, recipe, x.values, offsets, &work, nullptr).rows;
}

Quantized ColsOf(const Stream& stream, const GemmRecipe& recipe, const RecipeOperand& x, const Tensor& offsets,
                 Arena& work) {
  return x.cols.defined() ? x.cols : WithCopies(stream, recipe, x.values, offsets, nullptr, &work).cols;
}

// A weight's copy for forward, or the other one for the input gradient.
Quantized WeightCopy(const Stream& stream, const GemmRecipe& recipe, const RecipeWeight& weight, bool forward,
                     Arena& work) {
  if (weight.copies.defined()) {
    YM_CHECK(weight.copies.format == *recipe.format, "a weight's copies are of another recipe");
    return forward ? weight.copies.rows : weight.copies.cols;
  }
  const Tensor w = Grouped(weight.values);
  QuantizeWeightsArgs args{.format = *recipe.format, .w = w};
  Quantized& copy = forward ? args.rows : args.cols;
  copy = AllocateQuantized(work, "recipe/weight", *recipe.format,
                  forward ? w.shape() : Shape{w.dim(0), w.dim(2), w.dim(1)});
  QuantizeWeights(stream, args);
  return copy;
}

// Of products without groups the mode, which is that of experts' kernels, says one thing: whether units that multiply
// mxfp8 may be tried. fp8_block's stay with the FP8 kernels.
GroupedGemmMode ModeOf(const GemmRecipe& recipe, const Tensor& offsets, GroupedGemmMode mode) {
  return offsets.defined() || recipe.format->kind == QuantKind::kMxfp8 ? mode : GroupedGemmMode::kAuto;
}

}  // namespace

RecipeOperand CopiesOf(const GemmRecipe& recipe, int64_t R, int64_t C, const Tensor& offsets, Arena* rows,
                       Arena* cols) {
  RecipeOperand operand;
  operand.R = R;
  if (rows != nullptr) operand.rows = AllocateQuantized(*rows, "recipe/rows", *recipe.format, {R, C});
  if (cols != nullptr) operand.cols = AllocateQuantized(*cols, "recipe/cols", *recipe.format, {C, PaddedRows(R, GroupsOf(offsets))});
  return operand;
}

RecipeOperand WithCopies(const Stream& stream, const GemmRecipe& recipe, const Tensor& x, const Tensor& offsets,
                         Arena* rows, Arena* cols) {
  if (!recipe.format) return x;
  RecipeOperand operand = CopiesOf(recipe, x.dim(0), x.dim(1), offsets, rows, cols);
  operand.values = x;
  QuantizeRows(stream, {.format = *recipe.format,
                        .x = x,
                        .offsets = offsets,
                        .rows = operand.rows,
                        .cols = operand.cols});
  return operand;
}

void RecipeForward(const Stream& stream, const GemmRecipe& recipe, const RecipeForwardArgs& g, Arena& work) {
  const double beta = g.addend.defined() ? 1 : 0;
  if (!recipe.format) {
    const Tensor &x = g.x.values, &w = g.w.values;
    if (g.offsets.defined()) return GroupedGemmForward(stream, x, w, g.offsets, g.y, g.grouped_gemm);
    return Gemm(stream, {.a = x, .b = w, .d = g.y, .c = g.addend, .trans_b = true, .beta = beta});
  }
  ArenaScope scope(work);
  ScaledGemm(stream,
             {.format = *recipe.format,
              .x = RowsOf(stream, recipe, g.x, g.offsets, work),
              .w = WeightCopy(stream, recipe, g.w, /*forward=*/true, work),
              .offsets = g.offsets,
              .y = g.y,
              .c = g.addend,
              .beta = beta,
              .grouped_gemm = ModeOf(recipe, g.offsets, g.grouped_gemm)},
             work);
}

void RecipeBackwardInput(const Stream& stream, const GemmRecipe& recipe, const RecipeBackwardInputArgs& g,
                         Arena& work) {
  const double beta = g.accumulate ? 1 : 0;
  if (!recipe.format) {
    const Tensor &dy = g.dy.values, &w = g.w.values;
    if (g.offsets.defined()) return GroupedGemmBackwardInput(stream, dy, w, g.offsets, g.dx, g.grouped_gemm);
    return Gemm(stream, {.a = dy, .b = w, .d = g.dx, .beta = beta});
  }
  ArenaScope scope(work);
  ScaledGemm(stream,
             {.format = *recipe.format,
              .x = RowsOf(stream, recipe, g.dy, g.offsets, work),
              .w = WeightCopy(stream, recipe, g.w, /*forward=*/false, work),
              .offsets = g.offsets,
              .y = g.dx,
              .beta = beta,
              .grouped_gemm = ModeOf(recipe, g.offsets, g.grouped_gemm)},
             work);
}

void RecipeBackwardWeight(const Stream& stream, const GemmRecipe& recipe, const RecipeBackwardWeightArgs& g,
                          Arena& work) {
  if (!recipe.format) {
    const Tensor &dy = g.dy.values, &x = g.x.values;
    if (g.offsets.defined()) {
      return GroupedGemmBackwardWeight(stream, dy, x, g.offsets, g.beta, g.dw, g.grouped_gemm, g.free_sms, g.squares);
    }
    YM_CHECK(!g.squares.defined(), "a dense product does not square");
    return Gemm(stream, {.a = dy, .b = x, .d = g.dw, .trans_a = true, .beta = g.beta});
  }
  YM_CHECK_EQ(g.dy.R, g.x.R);
  ArenaScope scope(work);
  const Quantized dy = ColsOf(stream, recipe, g.dy, g.offsets, work);
  const Quantized x = ColsOf(stream, recipe, g.x, g.offsets, work);
  ScaledGemmWeight(stream,
                   {.format = *recipe.format,
                    .rows = g.x.R,
                    .dy = dy,
                    .x = x,
                    .offsets = g.offsets,
                    .dw = Grouped(g.dw),
                    .beta = g.beta,
                    .grouped_gemm = ModeOf(recipe, g.offsets, g.grouped_gemm),
                    .free_sms = g.free_sms,
                    .squares = g.squares},
                   work);
}

int64_t RecipeNormAddends(const Stream& stream, const GemmRecipe& recipe, DType x, const Tensor& dw,
                          GroupedGemmMode grouped_gemm) {
  const bool groups = dw.shape().rank() == 3;
  if (recipe.format) return ScaledGemmNormAddends(stream, *recipe.format, Grouped(dw), groups, grouped_gemm);
  return groups ? GroupedGemmNormAddends(stream, x, dw, grouped_gemm) : 0;
}

}  // namespace yardmaster
