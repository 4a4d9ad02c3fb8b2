// File: kernels/swiglu/swiglu.h
//
// SwiGLU on a fused gate+up projection, weighted by row; src/ops/swiglu.h has the formulas.
//   gate_up [R, 2F] = [g | u], act [R, F] = w * silu(g) * u; w [R] in the accumulator type or null (ones)
//   num_rows: int64 in device memory, or null: only the first num_rows[0] rows (at most R) are touched
//
// One block per row, rows by the grid's stride; 16-byte accesses. Memory-bound: forward reads 2F and writes F
// elements a row, backward reads 3F and writes 2F (3F with act). FP32 arithmetic for BF16 and FP32, FP64 for
// FP64, one rounding per output. dw is a block's sum in a fixed order. Backward recomputes act to forward's
// bits. Reference: src/ops/cpu/swiglu_cpu.cc; test: tests/ops/swiglu_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

cudaError_t SwigluForwardRows(KernelType type, const void* gate_up, const void* w, const int64_t* num_rows,
                              int64_t R, int64_t F, void* act, cudaStream_t stream);

// dgate_up may be gate_up; dw (with w) and act may be null.
cudaError_t SwigluBackwardRows(KernelType type, const void* dact, const void* gate_up, const void* w,
                               const int64_t* num_rows, int64_t R, int64_t F, void* dgate_up, void* dw,
                               void* act, cudaStream_t stream);

}  // namespace yardmaster
