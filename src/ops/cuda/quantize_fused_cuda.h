// File: src/ops/cuda/quantize_fused_cuda.h
#pragma once

#include "src/ops/quantize_fused.h"

namespace yardmaster::cuda {

// Arguments checked.
void QuantizeSwiglu(const Stream& stream, const QuantizeSwigluArgs& args);
void QuantizeNormed(const Stream& stream, const QuantizeNormedArgs& args);

}  // namespace yardmaster::cuda
