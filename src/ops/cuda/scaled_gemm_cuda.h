// File: src/ops/cuda/scaled_gemm_cuda.h
//
// fp8_block's products in the FP8 tensor cores of compute capability 9.0
// (kernels/grouped_gemm_fp8), mxfp8's in those of 10.x by cuBLASLt's grouped matmul
// (kernels/grouped_gemm: mxfp8_groups.h), where the library has it. The latter has not run.
#pragma once

#include "src/ops/scaled_gemm.h"

namespace yardmaster::cuda {

inline constexpr int64_t kFp8MaxGroups = 512;

// Whether cuBLASLt multiplies MXFP8 operands as they are: widths n and k of the weight, both
// contracted in a training step, in whole runs of 32; `aligned`: codes, and rows of results and
// addends, at multiples of 16 bytes; `lt_grouped`: whether the cuBLASLt that runs has grouped
// matmuls. Otherwise, and where the library then names no algorithm, operands go through BF16.
bool TakesMxfp8(GroupedGemmMode mode, int sm, int64_t groups, int64_t n, int64_t k, bool aligned,
                bool lt_grouped);

// mxfp8, arguments checked, the result not empty; x_tiles and the others for the scales in
// cuBLASLt's order (TileScaleShape and the like). False: not multiplied, nothing written but the
// tiles.
bool Mxfp8Gemm(const Stream& stream, const ScaledGemmArgs& args, const Tensor& x_tiles,
               const Tensor& w_tiles);
bool Mxfp8GemmWeight(const Stream& stream, const ScaledGemmWeightArgs& args, const Tensor& dy_tiles,
                     const Tensor& x_tiles);

// fp8_block, arguments checked, at most kFp8MaxGroups groups, y (of ScaledGemmWeight dw) not empty. Throw
// ConfigError on a GPU of another compute capability.
void ScaledGemm(const Stream& stream, const ScaledGemmArgs& args);
void ScaledGemmWeight(const Stream& stream, const ScaledGemmWeightArgs& args);

}  // namespace yardmaster::cuda
