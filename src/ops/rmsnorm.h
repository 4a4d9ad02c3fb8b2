// File: src/ops/rmsnorm.h
//
// RMSNorm with an optional residual in front (Zhang & Sennrich, arXiv 1910.07467):
//   h = x + residual;  y_d = h_d * rstd * w_d;  rstd = (mean_d h_d^2 + eps)^-1/2
// Sums are in the accumulator type (F32 for BF16 and F32, F64 for F64).
#pragma once

#include "src/device/arena.h"
#include "src/device/device.h"

namespace yardmaster {

struct RmsNormArgs {
  Tensor x;             // [T, D], ld >= D
  Tensor residual = {}; // [T, D] or undefined
  Tensor w;             // [D]
  double eps = 1e-6;
  Tensor h = {};        // [T, D]: x + residual; required with a residual, else undefined
  Tensor y;             // [T, D]
  Tensor rstd;          // [T], accumulator type, kept for backward
};
void RmsNormForward(const Stream& stream, const RmsNormArgs& args);

// With g = dy * w and n = h * rstd:  dh = rstd * (g - n * mean_d(g n)) + dresidual;  dw = sum_t dy * n + beta_w * dw.
// Since h = x + residual, dh is the gradient of both.
struct RmsNormBackwardArgs {
  Tensor dy;             // [T, D]
  Tensor h;              // [T, D], ld >= D: what forward normalised
  Tensor w;              // [D]
  Tensor rstd;           // [T]
  Tensor dresidual = {}; // [T, D] or undefined: gradient that reaches h by the residual path
  Tensor dh = {};        // [T, D], ld >= D; may be dresidual or dy itself. Undefined: only dw is computed
  Tensor dw = {};        // [D], main gradient type; undefined: not computed
  double beta_w = 0;
};
void RmsNormBackward(const Stream& stream, const RmsNormBackwardArgs& args, Arena& work);

}  // namespace yardmaster
