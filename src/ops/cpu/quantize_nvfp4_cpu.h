// File: src/ops/cpu/quantize_nvfp4_cpu.h
//
// NVFP4 on the cpu device: the definition that kernels are compared with, byte for byte.
#pragma once

#include "src/ops/quantize_nvfp4.h"

namespace yardmaster::cpu {

// Arguments checked.
void AbsMax(const Tensor& x, const Tensor& out);
void QuantizeNvfp4(const Stream& stream, const Nvfp4Args& args);
void DequantizeNvfp4(const Stream& stream, const Nvfp4Args& args, const Tensor& out);

}  // namespace yardmaster::cpu
