// File: kernels/norm/rmsnorm.h
//
// RMSNorm with a residual in front, forward and backward; src/ops/rmsnorm.h has the formulas.
//
// One block per row at a time; what a thread reads of a row stays in its registers up to kHeld packs (a row
// of 7168 BF16 elements fits), beyond it is read again. Forward reads x (and residual), writes y (and h).
// Backward reads dy, h (and dresidual), writes dh: memory-bound, one pass. `partials` blocks each take every
// partials-th row and keep their share of dw in registers; a second small kernel adds the partial rows in
// order. FP32 arithmetic for BF16 and FP32, FP64 for FP64; the mean of squares and the last sum of dw in
// FP64. Deterministic, no atomics. Reference: src/ops/cpu/rmsnorm_cpu.cc; test: tests/ops/rmsnorm_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

struct RmsNormForwardRows {
  int64_t rows, D;
  const void* x;  // rows at ldx
  int64_t ldx;
  const void* residual;  // [rows, D] or null
  const void* w;         // [D]
  double eps;
  void* h;     // [rows, D]: x + residual, with a residual
  void* y;     // [rows, D]
  void* rstd;  // [rows], accumulator type
};
cudaError_t RmsNormForward(KernelType type, const RmsNormForwardRows& args, cudaStream_t stream);

struct RmsNormBackwardRows {
  int64_t rows, D;
  const void* dy;  // [rows, D]
  const void* h;   // rows at ldh
  int64_t ldh;
  const void* w;          // [D]
  const void* rstd;       // [rows]
  const void* dresidual;  // [rows, D] or null
  void* dh;               // rows at lddh; may be dresidual or dy; null: only dw
  int64_t lddh;
  void* dw;  // [D], accumulator type, or null
  double beta_w;
  void* partial_dw;  // [partials, D], accumulator type, scratch; with dw
  int64_t partials;
};
cudaError_t RmsNormBackward(KernelType type, const RmsNormBackwardRows& args, cudaStream_t stream);

}  // namespace yardmaster
