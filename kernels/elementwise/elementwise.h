// File: kernels/elementwise/elementwise.h
//
// Fill, add and convert; memory-bound, 16-byte accesses.
// Reference: src/ops/cpu/elementwise_cpu.cc; test: tests/ops/elementwise_test.cc, tests/cuda/update_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

// n elements of 1, 2, 4 or 8 bytes, each the low bytes of `pattern`.
cudaError_t FillPattern(void* y, int64_t n, int element_bytes, uint64_t pattern, cudaStream_t stream);

// y = a + b in the accumulator type, rounded once; y may be a or b.
cudaError_t AddElements(KernelType type, const void* a, const void* b, void* y, int64_t n,
                        cudaStream_t stream);

// y[r, c] = x[r, c], rounded to nearest even where y's type is narrower (FP64 to BF16 through FP32, as on the
// cpu device).
cudaError_t ConvertRows(KernelType from, KernelType to, const void* x, int64_t ldx, void* y, int64_t ldy,
                        int64_t rows, int64_t cols, cudaStream_t stream);

}  // namespace yardmaster
