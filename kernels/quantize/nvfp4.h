// File: kernels/quantize/nvfp4.h
//
// NVFP4 (src/ops/quantize_nvfp4.h; reference src/ops/cpu/quantize_nvfp4_cpu.cc, byte for byte): a thread
// takes one run of 16 values, writes 8 bytes of codes and its scale. Memory-bound: BF16 in, 9/16 of a byte
// out. The largest magnitude of a tensor is an integer maximum over the bits, whose order does not matter.
// Test: tests/cuda/quantize_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

// x [R, C] BF16 or F32, rows ld apart; out FP32 [1].
cudaError_t AbsMaxOfMatrix(KernelType type, const void* x, int64_t R, int64_t C, int64_t ld, float* out,
                           cudaStream_t stream);

// C a multiple of 16, rows of x 16-byte aligned; codes [R, C/2], scales [R, C/16].
cudaError_t QuantizeNvfp4Rows(KernelType type, const void* x, int64_t R, int64_t C, int64_t ld,
                              const float* amax, uint8_t* codes, uint8_t* scales, cudaStream_t stream);
cudaError_t DequantizeNvfp4Rows(KernelType type, const uint8_t* codes, const uint8_t* scales,
                                const float* amax, int64_t R, int64_t C, void* out, cudaStream_t stream);

}  // namespace yardmaster
