// File: src/ops/cpu/quantize_cpu.h
//
// Quantisation on the cpu device: the definition that kernels are compared with, byte for byte.
#pragma once

#include "src/ops/quantize.h"

namespace yardmaster::cpu {

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

}  // namespace yardmaster::cpu
