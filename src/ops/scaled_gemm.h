// File: src/ops/scaled_gemm.h
//
// Matrix products of quantised operands (ops/quantize.h), for one matrix or one per group of ragged rows.
// Both operands lie with the contraction last, as tensor cores take 8-bit types:
//   ScaledGemm        y_RN   = x_RK w_LNK[l]^T + beta * c     forward: the `rows` copies of x and w; input
//                                                             gradient: `rows` of dy, `cols` of w
//   ScaledGemmWeight  dw_LNK = dy_RN^T x_RK + beta * dw_LNK   `cols` of dy and of x
// fp8_block: codes are multiplied and summed over 128 of the contraction, that sum is multiplied by both
// scales and added in FP32 ("promotion": 8-bit tensor cores of Hopper keep about 14 bits of a longer sum;
// arXiv 2412.19437, 3.3.2). mxfp8: where no unit multiplies it, the operands are dequantised, exactly, to
// BF16 (F32 on cpu) and multiplied as such.
//   cpu   both, the reference
//   cuda  fp8_block by the tensor cores of compute capability 9.0 (kernels/grouped_gemm_fp8; another throws
//         ConfigError), beta 0 or 1, rows of y 16-byte aligned. mxfp8 by cuBLASLt's grouped matmul on compute
//         capability 10.x where the library has it and `grouped_gemm` is auto (cuda/scaled_gemm_cuda.h; it
//         has not run), else through BF16; so does fp8_block where `grouped_gemm` asks for portable kernels
//         or a loop (exact scales: each operand is rounded to BF16)
// `work` holds dequantised operands, or scales in the library's order, within the call: planned for both.
// Rows beyond the last group are neither read nor written; a group without rows gives beta * dw, zeros for
// beta == 0.
#pragma once

#include "src/device/arena.h"
#include "src/ops/grouped_gemm.h"
#include "src/ops/quantize.h"

namespace yardmaster {

struct ScaledGemmArgs {
  QuantFormat format;
  Quantized x;          // codes [R, K], a `rows` copy
  Quantized w;          // codes [L, N, K]: 128x128 scales in fp8_block
  Tensor offsets = {};  // int64 [L + 1]; undefined: L is 1, all rows
  Tensor y;             // [R, N] F32 on cpu, BF16 on cuda; any ld without offsets
  Tensor c = {};        // like y, read when beta != 0; undefined: y itself. Without offsets only
  double beta = 0;
  GroupedGemmMode grouped_gemm = GroupedGemmMode::kAuto;  // of products in BF16
};
void ScaledGemm(const Stream& stream, const ScaledGemmArgs& args, Arena& work);

struct ScaledGemmWeightArgs {
  QuantFormat format;
  int64_t rows = 0;  // R, of which the aligned row space was made
  Quantized dy;      // codes [N, PaddedRows(R, L)], a `cols` copy
  Quantized x;       // codes [K, PaddedRows(R, L)]
  Tensor offsets = {};
  Tensor dw;  // [L, N, K] F32
  double beta = 0;
  GroupedGemmMode grouped_gemm = GroupedGemmMode::kAuto;  // of products in BF16
  // Multiprocessors left, by the kernels of sm_90, to what runs beside it (ops/grouped_gemm.h); the bits do not depend
  // on it. Where products go through BF16: of those with groups.
  int free_sms = 0;
  // With beta 0: F64 [NumNormChunks(dw) * ScaledGemmNormAddends], as of GroupedGemmBackwardWeight.
  Tensor squares = {};
};
void ScaledGemmWeight(const Stream& stream, const ScaledGemmWeightArgs& args, Arena& work);
// Addends of the norm that it sums for each chunk of dw [L, N, K]; 0: none (ops/grouped_gemm.h). `groups`: with offsets.
int64_t ScaledGemmNormAddends(const Stream& stream, const QuantFormat& format, const Tensor& dw, bool groups,
                              GroupedGemmMode grouped_gemm);

}  // namespace yardmaster
