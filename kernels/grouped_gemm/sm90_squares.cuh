// File: kernels/grouped_gemm/sm90_squares.cuh
//
// The squares of a weight gradient, added up while it is on its way to memory: the norm of the
// gradients then need not read it again (4 bytes a weight).
//
// A warp adds the squares of its 16 rows of a tile. A thread's, at most 128, are added in FP32 in
// chains of eight (relative error under 1e-6, of either sign: of a sum over many threads it is far
// smaller), a warp's in FP64. Each sum has a place of its own, so the bits depend on the values
// alone, not on who computes what. The square of a number beyond 1.8e19 is infinite, that of one
// under 1e-19 loses digits.
#pragma once

#include <cstdint>

#include "kernels/common/block_reduce.cuh"

namespace yardmaster::sm90 {

// Addends F64 [experts, chunks, column_tiles, 8]: of an expert's 128 rows, a tile's columns, 16 of
// the rows.
struct SquaresOut {
  static constexpr int kChunkRows = 128;
  static constexpr int kWarpRows = 16;
  double* addends = nullptr;
  int chunks = 0;
  int column_tiles = 0;

  // Of the warp whose rows of the expert's matrix begin at `row`. All lanes call.
  __device__ __forceinline__ void Store(int expert, int row, int column_tile, float sum) const {
    const double warp = WarpReduce(static_cast<double>(sum), SumOp());
    const int64_t tile = (int64_t{expert} * chunks + row / kChunkRows) * column_tiles + column_tile;
    if (threadIdx.x % 32 == 0)
      addends[tile * (kChunkRows / kWarpRows) + row % kChunkRows / kWarpRows] = warp;
  }
};

// Of value(0) to value(15).
template <class Value>
__device__ __forceinline__ float SumSquares16(const Value& value) {
  float sum[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sum[i] = value(8 * i) * value(8 * i);
#pragma unroll
    for (int j = 1; j < 8; ++j) sum[i] = fmaf(value(8 * i + j), value(8 * i + j), sum[i]);
  }
  return sum[0] + sum[1];
}

}  // namespace yardmaster::sm90
