// File: src/ops/cpu/wire_rows_cpu.h
#pragma once

#include "src/ops/wire_rows.h"

namespace yardmaster::cpu {

// A row copy of args.x, codes and scales, into args.wire; what is between them and behind them is 0.
void Interleave(const Stream& stream, const PackRowsArgs& args, const Quantized& rows);
// Rows below offsets[L] as F32 [R, D].
void DecodeWire(const Stream& stream, const UnpackRowsArgs& args, const Tensor& values);

}  // namespace yardmaster::cpu
