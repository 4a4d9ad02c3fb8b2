// File: kernels/split/split_bf16.h
//
// FP32 matrices as sums of BF16 terms, and sums of FP32 matrices; src/ops/split_bf16.h has the contract.
// Memory-bound, one pass; four elements at a time where addresses, widths and row distances allow it.
// Reference: src/ops/cpu/split_bf16_cpu.cc; test: tests/ops/split_bf16_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

constexpr int kSplitMost = 4;  // outputs of a split, terms of a sum

struct SplitOutputs {
  int count = 0;
  void* y[kSplitMost];  // BF16, rows at ld
  int64_t ld[kSplitMost];
  int term[kSplitMost];  // 0, 1, 2
};
cudaError_t SplitToBf16(const float* x, int64_t ldx, int64_t rows, int64_t cols, const SplitOutputs& outputs,
                        cudaStream_t stream);

struct SumTerms {
  int count = 0;
  const float* x[kSplitMost];
  int64_t ld[kSplitMost];
};
// y = beta * y + x[0] + x[1] + ..., in this order; beta 0 does not read y.
cudaError_t AddMatrices(const SumTerms& terms, double beta, float* y, int64_t ldy, int64_t rows, int64_t cols,
                        cudaStream_t stream);

}  // namespace yardmaster
