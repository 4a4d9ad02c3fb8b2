// File: kernels/loss/cross_entropy.h
//
// Cross-entropy of a chunk of tokens and its gradient, written over the logits.
//   loss_t = log(sum_v exp z_tv) - z_t,target;   z <- grad_scale * (softmax(z) - onehot(target))
// A target of -1 does not count: loss 0, gradient 0. A target outside [-1, V) gives a NaN loss (the host cannot look), which
// the step's verdict finds.
//
// One thread block per row. Two passes over the row: largest and sum together (rescaled as the largest grows), then the
// gradient: 2 reads and 1 write of V elements, memory-bound. FP32 arithmetic for BF16 and FP32 logits, FP64 for FP64; the
// loss in FP64. Deterministic: fixed order within a row, no atomics.
// Reference: src/ops/cpu/linear_cross_entropy_cpu.cc; test: tests/cuda/linear_cross_entropy_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

// device_scale: FP64 in device memory that grad_scale is multiplied by, or null.
// logits [rows, V] dense; targets int32 [rows]; losses FP64 [rows]. gradient false: the logits stay as they are.
cudaError_t CrossEntropyRows(KernelType type, void* logits, int64_t rows, int64_t V, const int32_t* targets,
                             double grad_scale, const double* device_scale, bool gradient, double* losses,
                             cudaStream_t stream);

// loss_sum[0] += losses[0] + losses[1] + ... of the tokens that count, one after the other; valid[0] += their number (valid
// may be null).
cudaError_t AddLosses(const double* losses, const int32_t* targets, int64_t rows, double* loss_sum, int64_t* valid,
                      cudaStream_t stream);

}  // namespace yardmaster
