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
//
// cpu: F32 or F64. cuda: BF16 (accumulated in FP32; dw in F32 or BF16), F32, F64.
#pragma once

#include "src/device/device.h"

namespace yardmaster {

// What runs on cuda. kAuto: the fastest kernels that take the type and shape on this GPU; kHopper: those of
// sm_90, a ConfigError where they do not; kPortable: those of every GPU; kLoop: a dense GEMM per expert with
// counts read by the host (it waits for the stream: a baseline, not for a captured step).
enum class GroupedGemmMode : uint8_t { kAuto, kHopper, kPortable, kLoop };

void GroupedGemmForward(const Stream& stream, const Tensor& x_RK, const Tensor& w_LNK, const Tensor& offsets,  // int64 [L+1]
                        const Tensor& y_RN, GroupedGemmMode mode = GroupedGemmMode::kAuto);
void GroupedGemmBackwardInput(const Stream& stream, const Tensor& dy_RN, const Tensor& w_LNK, const Tensor& offsets,
                              const Tensor& dx_RK, GroupedGemmMode mode = GroupedGemmMode::kAuto);
// free_sms: multiprocessors that are left, by the kernels of sm_90, to what runs beside it all the time. Their work is
// dealt out beforehand: a share whose multiprocessor is taken would begin when the others end.
void GroupedGemmBackwardWeight(const Stream& stream, const Tensor& dy_RN, const Tensor& x_RK, const Tensor& offsets,
                               double beta, const Tensor& dw_LNK, GroupedGemmMode mode = GroupedGemmMode::kAuto,
                               int free_sms = 0, const Tensor& squares = {});
// squares, with beta 0: F64 [NumNormChunks(dw) * n], the addends of dw's norm (ops/step_control.h), n for each chunk,
// summed while dw is written. n is this, 0 where the kernels that take the product do not sum them. On cuda a thread's
// squares are added in FP32, relative error of the norm under 1e-6; an element beyond 1.8e19 makes it infinite.
int64_t GroupedGemmNormAddends(const Stream& stream, DType x, const Tensor& dw_LNK,
                               GroupedGemmMode mode = GroupedGemmMode::kAuto);

}  // namespace yardmaster
