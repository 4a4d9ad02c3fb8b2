// File: src/ops/cuda/pad_rows_cuda.h
#pragma once

#include "src/ops/pad_rows.h"

namespace yardmaster::cuda {

void PadRows(const Stream& stream, const PadRowsArgs& args);
void UnpadRows(const Stream& stream, const PadRowsArgs& args);
void PaddedOffsets(const Stream& stream, int64_t rows, const Tensor& offsets);

}  // namespace yardmaster::cuda
