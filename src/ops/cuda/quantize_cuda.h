// File: src/ops/cuda/quantize_cuda.h
#pragma once

#include "kernels/quantize/quantize.h"
#include "src/ops/quantize.h"

namespace yardmaster::cuda {

// Arguments checked.
void QuantizeRows(const Stream& stream, const QuantizeRowsArgs& args);
void QuantizeWeights(const Stream& stream, const QuantizeWeightsArgs& args);
void Dequantize(const Stream& stream, const DequantizeArgs& args);
void DequantizeWeights(const Stream& stream, const QuantizeWeightsArgs& args, const Tensor& out);
void ScalesToTiles(const Stream& stream, const Tensor& scales, int64_t rows, const Tensor& offsets,
                   const Tensor& tiles);
void WeightScalesToTiles(const Stream& stream, const Tensor& scales, const Tensor& tiles);
void ColumnScalesToTiles(const Stream& stream, const Tensor& scales, int64_t C, int64_t rows,
                         const Tensor& offsets, const Tensor& tiles);

// What the kernels take.
QuantRule RuleOf(const QuantFormat& format);
QuantCopies CopiesOf(const Quantized& rows, const Quantized& cols);
RaggedRows RaggedRowsOf(const Tensor& x, int64_t columns, const Tensor& offsets);

}  // namespace yardmaster::cuda
