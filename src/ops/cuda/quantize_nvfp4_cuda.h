// File: src/ops/cuda/quantize_nvfp4_cuda.h
#pragma once

#include "src/ops/quantize_nvfp4.h"

namespace yardmaster::cuda {

// Arguments checked.
void AbsMax(const Stream& stream, const Tensor& x, const Tensor& out);
void QuantizeNvfp4(const Stream& stream, const Nvfp4Args& args);
void DequantizeNvfp4(const Stream& stream, const Nvfp4Args& args, const Tensor& out);

}  // namespace yardmaster::cuda
