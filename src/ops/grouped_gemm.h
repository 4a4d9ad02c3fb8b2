// File: src/ops/grouped_gemm.h
//
// One GEMM per local expert over ragged rows: expert l owns rows [offsets[l], offsets[l+1]) of x_RK. The offsets live in
// device memory and the host never reads them. Rows at and beyond offsets[L] are neither read nor written (they may hold
// anything, NaN included). An expert without rows costs nothing in forward and dgrad; its weight gradient is beta * dw,
// written as zeros when beta == 0.
//
//   forward  y_RN    = x_RK  w_LNK[l]^T
//   dgrad    dx_RK   = dy_RN w_LNK[l]
//   wgrad    dw_LNK  = dy_RN^T x_RK + beta * dw_LNK     (the ragged axis is the contraction)
#pragma once

#include "src/device/device.h"

namespace yardmaster {

void GroupedGemmForward(const Stream& stream, const Tensor& x_RK, const Tensor& w_LNK, const Tensor& offsets,  // int64 [L+1]
                        const Tensor& y_RN);
void GroupedGemmBackwardInput(const Stream& stream, const Tensor& dy_RN, const Tensor& w_LNK, const Tensor& offsets,
                              const Tensor& dx_RK);
void GroupedGemmBackwardWeight(const Stream& stream, const Tensor& dy_RN, const Tensor& x_RK, const Tensor& offsets,
                               double beta, const Tensor& dw_LNK);

}  // namespace yardmaster
