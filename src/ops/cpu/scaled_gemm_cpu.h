// File: src/ops/cpu/scaled_gemm_cpu.h
//
// The reference of fp8_block: sums of 128 products of codes, exact but for FP32's rounding, promoted with
// their scales.
#pragma once

#include "src/ops/scaled_gemm.h"

namespace yardmaster::cpu {

// Arguments checked; `values` are codes decoded without their scales, F32, in the shapes of the codes.
void Fp8BlockGemm(const Stream& stream, const ScaledGemmArgs& args, const Tensor& x_values,
                  const Tensor& w_values);
void Fp8BlockGemmWeight(const Stream& stream, const ScaledGemmWeightArgs& args, const Tensor& dy_values,
                        const Tensor& x_values);
// values [same elements] F32 = E4M3 codes.
void DecodeE4m3(const Stream& stream, const Tensor& codes, const Tensor& values);

}  // namespace yardmaster::cpu
