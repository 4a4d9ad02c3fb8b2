// File: kernels/grouped_gemm_fp8/sm90_fp8_launch.h
//
// The Hopper FP8 grouped GEMM with its configuration given: what grouped_gemm_fp8.h's functions
// call after they have chosen one, and what the benchmark calls to compare configurations.
#pragma once

#include "kernels/grouped_gemm_fp8/grouped_gemm_fp8.h"
#include "kernels/grouped_gemm_fp8/sm90_fp8_config.h"

namespace yardmaster::sm90fp8 {

cudaError_t LaunchRows(const Fp8RowsArgs& args, const Config& config, cudaStream_t stream);
cudaError_t LaunchWgrad(const Fp8WgradArgs& args, const Config& config, cudaStream_t stream);

}  // namespace yardmaster::sm90fp8
