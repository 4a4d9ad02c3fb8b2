#include "src/ops/recipe_gemm.h"

#include "src/ops/gemm.h"
#include "src/ops/scaled_gemm.h"

namespace yardmaster {
namespace {

int64_t GroupCount(const Tensor& offsets) { return offsets.defined() ? offsets.dim(0) - 1 : 1; }

// A weight as [L, N, K].
Tensor Grouped(const Tensor& w) { return w.shape().rank() == 3 ? w : w.Reshape({1, w.dim(0), w.dim(1)}); }

Quantized Allocate(Arena& work, const char* what, const QuantFormat& format, const Shape& codes) {
  const Shape scales = codes.rank() == 3 ? WeightScaleShape(format, codes[0], codes[1], codes[2])
                                         : ScaleShape(format, codes[0], codes[1]);
  return {work.Allocate(what, DType::kU8, codes), work.Allocate(what, format.scale_type(), scales)};
}

// Contracted along its columns.
Quantized QuantizedRowsOf(const Stream& stream, const QuantFormat& format, const Tensor& x,
                          const Tensor& offsets, Arena& work) {
  const Quantized rows = Allocate(work, "recipe/rows", format, {x.dim(0), x.dim(1)});
  QuantizeRows(stream, {.format = format, .x = x, .offsets = offsets, .rows = rows});
  return rows;
}

// Contracted along its rows.
Quantized QuantizedColsOf(const Stream& stream, const QuantFormat& format, const Tensor& x,
                          const Tensor& offsets, Arena& work) {
  const Quantized cols =
      Allocate(work, "recipe/cols", format, {x.dim(1), PaddedRows(x.dim(0), GroupCount(offsets))});
  QuantizeRows(stream, {.format = format, .x = x, .offsets = offsets, .cols = cols});
  return cols;
}

}  // namespace

void RecipeForward(const Stream& stream, const GemmRecipe& recipe, const RecipeForwardArgs& g, Arena& work) {
  const double beta = g.addend.defined() ? 1 : 0;
  if (!recipe.format) {
    if (g.offsets.defined()) return GroupedGemmForward(stream, g.x, g.w, g.offsets, g.y, g.grouped_gemm);
    return Gemm(stream, {.a = g.x, .b = g.w, .d = g.y, .c = g.addend, .trans_b = true, .beta = beta});
  }
  ArenaScope scope(work);
  const Tensor w = Grouped(g.w);
  const Quantized x = QuantizedRowsOf(stream, *recipe.format, g.x, g.offsets, work);
  const Quantized qw = Allocate(work, "recipe/weight", *recipe.format, w.shape());
  QuantizeWeights(stream, {.format = *recipe.format, .w = w, .rows = qw});
  ScaledGemm(stream,
             {.format = *recipe.format,
              .x = x,
              .w = qw,
              .offsets = g.offsets,
              .y = g.y,
              .c = g.addend,
              .beta = beta,
              .grouped_gemm = g.grouped_gemm},
             work);
}

void RecipeBackwardInput(const Stream& stream, const GemmRecipe& recipe, const RecipeBackwardInputArgs& g,
                         Arena& work) {
  const double beta = g.accumulate ? 1 : 0;
  if (!recipe.format) {
    if (g.offsets.defined())
      return GroupedGemmBackwardInput(stream, g.dy, g.w, g.offsets, g.dx, g.grouped_gemm);
    return Gemm(stream, {.a = g.dy, .b = g.w, .d = g.dx, .beta = beta});
  }
  ArenaScope scope(work);
  const Tensor w = Grouped(g.w);
  const Quantized dy = QuantizedRowsOf(stream, *recipe.format, g.dy, g.offsets, work);
  const Quantized qw = Allocate(work, "recipe/weight", *recipe.format, {w.dim(0), w.dim(2), w.dim(1)});
  QuantizeWeights(stream, {.format = *recipe.format, .w = w, .cols = qw});
  ScaledGemm(stream,
             {.format = *recipe.format,
              .x = dy,
              .w = qw,
              .offsets = g.offsets,
              .y = g.dx,
              .beta = beta,
              .grouped_gemm = g.grouped_gemm},
             work);
}

void RecipeBackwardWeight(const Stream& stream, const GemmRecipe& recipe, const RecipeBackwardWeightArgs& g,
                          Arena& work) {
  if (!recipe.format) {
    if (g.offsets.defined()) {
      return GroupedGemmBackwardWeight(stream, g.dy, g.x, g.offsets, g.beta, g.dw, g.grouped_gemm);
    }
    return Gemm(stream, {.a = g.dy, .b = g.x, .d = g.dw, .trans_a = true, .beta = g.beta});
  }
  ArenaScope scope(work);
  const Quantized dy = QuantizedColsOf(stream, *recipe.format, g.dy, g.offsets, work);
  const Quantized x = QuantizedColsOf(stream, *recipe.format, g.x, g.offsets, work);
  ScaledGemmWeight(stream,
                   {.format = *recipe.format,
                    .rows = g.x.dim(0),
                    .dy = dy,
                    .x = x,
                    .offsets = g.offsets,
                    .dw = Grouped(g.dw),
                    .beta = g.beta,
                    .grouped_gemm = g.grouped_gemm},
                   work);
}

}  // namespace yardmaster
