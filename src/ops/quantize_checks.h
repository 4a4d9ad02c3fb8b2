// File: src/ops/quantize_checks.h
//
// What ops on quantised matrices (ops/quantize.h) check of their arguments, for their .cc files alone.
#pragma once

#include "src/ops/op_args.h"
#include "src/ops/quantize.h"

namespace yardmaster {

// The type of high-precision values in a step with a recipe: what activations are quantised from and results of 8-bit
// products are stored in.
inline DType RecipeWorkType(const Stream& stream) {
  return stream.target() == DeviceKind::kCuda ? DType::kBF16 : DType::kF32;
}

// F32 or BF16, any leading dimension: what quantisers read and dequantising gives.
inline void CheckHigh(const OpArgs& check, const char* name, const Tensor& t, int rank) {
  check.Rank(name, t, rank);
  YM_CHECK(t.dtype() == DType::kF32 || t.dtype() == DType::kBF16, name, " is ", DTypeName(t.dtype()),
           ", not F32 or BF16");
  check.Strided(name, t, t.dtype(), t.shape());
}

// How many groups of ragged rows there are; offsets int64 [L + 1], undefined: one.
inline int64_t CheckOffsets(const OpArgs& check, const Tensor& offsets) {
  if (!offsets.defined()) return 1;
  check.Rank("offsets", offsets, 1);
  check.Contiguous("offsets", offsets, DType::kI64, {offsets.dim(0)});
  YM_CHECK(offsets.dim(0) >= 2, "offsets ", offsets.shape(), ": no group");
  return GroupsOf(offsets);
}

// Codes of this shape, and their scales.
inline void CheckOperand(const OpArgs& check, const char* name, const QuantFormat& format, const Quantized& q,
                         const Shape& codes) {
  check.Contiguous(name, q.codes, DType::kU8, codes);
  check.Contiguous(name, q.scales, format.scale_type(), ScalesOf(format, codes));
}

// The copies of x [R, C] in L groups that are wanted. Kernels move 16 codes at once.
inline void CheckColumns(const Stream& stream, int64_t columns) {
  YM_CHECK(stream.target() != DeviceKind::kCuda || columns % 16 == 0, columns,
           " columns: cuda takes multiples of 16");
}
inline void CheckCopies(const Stream& stream, const OpArgs& check, const QuantFormat& format, const Quantized& rows,
                        const Quantized& cols, int64_t R, int64_t C, int64_t L) {
  if (rows.defined()) CheckOperand(check, "rows", format, rows, {R, C});
  if (cols.defined()) CheckOperand(check, "cols", format, cols, {C, PaddedRows(R, L)});
  CheckColumns(stream, C);
}
// The same of a weight [L, N, K].
inline void CheckWeightCopies(const Stream& stream, const OpArgs& check, const QuantFormat& format,
                              const Quantized& rows, const Quantized& cols, const Shape& w) {
  if (rows.defined()) CheckOperand(check, "rows", format, rows, w);
  if (cols.defined()) CheckOperand(check, "cols", format, cols, {w[0], w[2], w[1]});
  CheckColumns(stream, w[1]);
  CheckColumns(stream, w[2]);
}

}  // namespace yardmaster
