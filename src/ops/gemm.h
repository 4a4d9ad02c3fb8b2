// File: src/ops/gemm.h
//
// D = alpha * op(A) op(B) + beta * C, row-major, any leading dimensions. A linear layer y_TN = x_TK W_NK^T is
// {.a = x, .b = W, .trans_b = true}; its input gradient {.a = dy, .b = W}; its weight gradient
// {.a = dy, .b = x, .trans_a = true, .beta = 0 or 1}.
// cpu: OpenBLAS in F32 or F64. cuda: cuBLASLt, BF16 (accumulated in FP32; C and D in BF16 or F32), F32 (no TF32), F64. Accuracy: the rounding of one dot product in the accumulator type (F32; F64 for F64).
// Deterministic: the same shapes give the same bits. M, N or K of 0 is legal (K == 0: D = beta * C).
#pragma once

#include <string>

#include "src/device/device.h"

namespace yardmaster {

struct GemmArgs {
  Tensor a;                 // [M, K], or [K, M] with trans_a
  Tensor b;                 // [K, N], or [N, K] with trans_b
  Tensor d;                 // [M, N]
  Tensor c = {};            // [M, N], read when beta != 0; undefined: d itself. A residual goes in here.
  bool trans_a = false, trans_b = false;
  double alpha = 1, beta = 0;  // beta == 0: old contents (NaN included) do not matter
};

void Gemm(const Stream& stream, const GemmArgs& args);

// The library algorithm taken for every shape so far, a line each; empty where there is no choice.
std::string GemmAlgorithms(const Stream& stream);

}  // namespace yardmaster
