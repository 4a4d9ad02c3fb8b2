// File: kernels/grouped_gemm/sm90_launch.h
//
// The Hopper grouped GEMM with its configuration given: what grouped_gemm.h's functions call after
// they have chosen one, and what the benchmark calls to compare configurations.
#pragma once

#include "kernels/grouped_gemm/grouped_gemm.h"
#include "kernels/grouped_gemm/sm90_config.h"

namespace yardmaster::sm90 {

struct GemmProblem {
  GemmOp op = GemmOp::kForward;
  GroupedGemmShape shape;
  const void* a = nullptr;  // w_LNK, w_LNK, dy_RN
  const void* b = nullptr;  // x_RK, dy_RN, x_RK
  void* d = nullptr;        // y_RN, dx_RK, dw_LNK
  const int64_t* offsets = nullptr;
  GroupedGemmOutput output = GroupedGemmOutput::kBf16;  // wgrad
  bool accumulate = false;                              // wgrad
  double* squares = nullptr;                            // wgrad, FP32, beta 0
};

cudaError_t LaunchGemm(const GemmProblem& problem, const GemmConfig& config, cudaStream_t stream);

}  // namespace yardmaster::sm90
