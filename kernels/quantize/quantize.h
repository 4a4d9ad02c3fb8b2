// File: kernels/quantize/quantize.h
//
// 8-bit copies of matrices; src/ops/quantize.h says what they hold, src/ops/cpu/quantize_cpu.cc is the
// reference, byte for byte. tests/cuda/quantize_test.cc compares.
//
// One launch for all groups of ragged rows, whose offsets are read on the device. A block of 256 threads
// takes 128 rows of one group x 128 columns: the values are read once, 16 bytes a lane, stay in registers,
// and give the row-wise codes (8 bytes a lane), and through 16 KiB of shared memory the transposed ones (16
// bytes a lane). Largest magnitudes of rows go through shuffles, of columns through shared memory.
// Memory-bound: BF16 with both copies moves 4 bytes an element and 1/32 (fp8_block 1/16) of a byte of scales.
// No atomics. Rows beyond the last group are neither read nor written; pad rows are zeros. Codes with more
// than 2^31 columns or 2^31 / 128 row blocks are beyond the grid.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

enum class QuantRule : uint8_t { kExact, kPowerOfTwo, kMx };  // FP32 scales of 1x128, E8M0 scales of 1x32

struct QuantCopies {
  uint8_t* codes = nullptr;  // [R, C]; null: not wanted
  void* scales = nullptr;    // FP32 [ceil(C/128), scales_ld], or uint8 [ceil(C/32), scales_ld]
  int64_t scales_ld = 0;
  uint8_t* codes_t = nullptr;  // [C, P], P a multiple of 128 that holds all groups
  void* scales_t = nullptr;    // FP32 [P/128, scales_t_ld], or uint8 [P/32, scales_t_ld]
  int64_t scales_t_ld = 0;
  int64_t P = 0;
};

struct RaggedRows {
  const void* x = nullptr;           // [R, C], BF16 or F32; 16-byte aligned rows
  int64_t R = 0, C = 0, ld = 0;      // C a multiple of 16
  const int64_t* offsets = nullptr;  // int64 [L + 1]; null: one group
  int64_t L = 1;
};

cudaError_t QuantizeRaggedRows(KernelType type, QuantRule rule, const RaggedRows& rows, const QuantCopies& to,
                               cudaStream_t stream);

// w [L, N, K], BF16 or F32 (through_bf16: its values rounded to BF16 first): codes [L, N, K], codes_t [L, K, N]. N and K multiples of
// 16. kMx: scales [L, ceil(K/32), N], scales_t [L, ceil(N/32), K]. Else one scale for 128x128, FP32 [L,
// ceil(N/128), ceil(K/128)] and [L, ceil(K/128), ceil(N/128)]. The ld and P of `to` are not read.
cudaError_t QuantizeExpertWeights(KernelType type, bool through_bf16, QuantRule rule, const void* w, int64_t L,
                                  int64_t N, int64_t K, const QuantCopies& to, cudaStream_t stream);

// The same of values that are made on the way and never stored, BF16:
//   weighted SwiGLU of gate_up [R, 2C] = [g | u] and w FP32 [R] or null: the bits of kernels/swiglu
//   RMSNorm's output h [R, C] * rstd [R] * weight [C] from kept FP32 rstd: the bits of kernels/norm
// `rows.x` is gate_up or h.
cudaError_t QuantizeSwigluRows(QuantRule rule, const RaggedRows& rows, const float* w, const QuantCopies& to,
                               cudaStream_t stream);
cudaError_t QuantizeNormedRows(QuantRule rule, const RaggedRows& rows, const float* rstd, const void* weight,
                               const QuantCopies& to, cudaStream_t stream);

// code * scale, rounded to `type`. Of codes or, where these are null, of codes_t; out [R, C].
cudaError_t DequantizeRaggedRows(KernelType type, QuantRule rule, const QuantCopies& from, int64_t R,
                                 int64_t C, const int64_t* offsets, int64_t L, void* out,
                                 cudaStream_t stream);
cudaError_t DequantizeExpertWeights(KernelType type, QuantRule rule, const QuantCopies& from, int64_t L,
                                    int64_t N, int64_t K, void* out, cudaStream_t stream);

// E8M0 scales [runs, ld] of R rows in cuBLASLt's tiles of 128 x 4, each group from a tile of its own; absent ones are 0.
cudaError_t MxScalesToTiles(const uint8_t* scales, int64_t ld, int64_t R, int64_t runs, const int64_t* offsets, int64_t L,
                            uint8_t* tiles, cudaStream_t stream);
// The same of weights' scales [L, runs, N], and of a transposed copy's [P / 32, ld], C rows of codes.
cudaError_t MxWeightScalesToTiles(const uint8_t* scales, int64_t L, int64_t N, int64_t runs, uint8_t* tiles,
                                  cudaStream_t stream);
cudaError_t MxColumnScalesToTiles(const uint8_t* scales, int64_t ld, int64_t C, int64_t R,
                                  const int64_t* offsets, int64_t L, uint8_t* tiles, cudaStream_t stream);

}  // namespace yardmaster
