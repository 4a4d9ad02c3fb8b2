// File: src/ops/cpu/quantize_fused_cpu.h
#pragma once

#include "src/ops/quantize_fused.h"

namespace yardmaster::cpu {

// y = h * rstd * weight, row by row; rows of no group too.
void Normed(const Stream& stream, const QuantizeNormedArgs& args, const Tensor& y);

}  // namespace yardmaster::cpu
