// File: src/ops/cuda/scaled_gemm_cuda.h
//
// fp8_block's products in the FP8 tensor cores of compute capability 9.0
// (kernels/grouped_gemm_fp8).
#pragma once

#include "src/ops/scaled_gemm.h"

namespace yardmaster::cuda {

inline constexpr int64_t kFp8MaxGroups = 512;

// Arguments checked, at most kFp8MaxGroups groups, y (of ScaledGemmWeight dw) not empty. Throw
// ConfigError on a GPU of another compute capability.
void ScaledGemm(const Stream& stream, const ScaledGemmArgs& args);
void ScaledGemmWeight(const Stream& stream, const ScaledGemmWeightArgs& args);

}  // namespace yardmaster::cuda
