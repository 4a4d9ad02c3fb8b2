// File: kernels/grouped_gemm/tile_squares.h
//
// The sums of squares that the weight gradients' kernels of sm_90 give (sm90_squares.cuh), of a
// gradient that lies in memory: the same bits, so that a norm does not depend on whether the gradient
// was written in one part or in several. Runs on every GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

struct TileSquaresArgs {
  const float* x = nullptr;   // [matrices, n, k], 16-byte aligned
  int64_t matrices = 0, n = 0, k = 0;
  int columns = 0;            // of a tile: 256 (grouped_gemm.h) or 128 (grouped_gemm_fp8.h)
  double* squares = nullptr;  // [matrices, n / 128, k / columns, 8]
};

// Memory-bound: reads x once. cudaErrorInvalidValue: n is no multiple of 128, k none of `columns`,
// or another width.
cudaError_t TileSquares(const TileSquaresArgs& args, cudaStream_t stream);

}  // namespace yardmaster
