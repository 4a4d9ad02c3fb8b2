// File: src/ops/cpu/grouped_gemm_cpu.h
//
// One single-threaded GEMM per block of an expert's rows (forward, dgrad) or of its weight's rows
// (wgrad). Blocks depend on the offsets alone, so the bits do not depend on the number of threads.
#pragma once

#include "src/ops/grouped_gemm.h"

namespace yardmaster::cpu {

// Arguments checked.
void GroupedGemmForward(const Stream& stream, const Tensor& x_RK, const Tensor& w_LNK,
                        const Tensor& offsets, const Tensor& y_RN);
void GroupedGemmBackwardInput(const Stream& stream, const Tensor& dy_RN, const Tensor& w_LNK,
                              const Tensor& offsets, const Tensor& dx_RK);
void GroupedGemmBackwardWeight(const Stream& stream, const Tensor& dy_RN, const Tensor& x_RK,
                               const Tensor& offsets, double beta, const Tensor& dw_LNK);

}  // namespace yardmaster::cpu
