// File: src/ops/cpu/pad_rows_cpu.h
#pragma once

#include "src/ops/pad_rows.h"

namespace yardmaster::cpu {

void PadRows(const Stream& stream, const PadRowsArgs& args);
void UnpadRows(const Stream& stream, const PadRowsArgs& args);
void PaddedOffsets(int64_t rows, const Tensor& offsets);

}  // namespace yardmaster::cpu
