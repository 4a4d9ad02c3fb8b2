#include "kernels/grouped_gemm/tile_squares.h"

#include "kernels/grouped_gemm/sm90_squares.cuh"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

// A block for 128 rows of a tile, a warp for 16 of them. A thread takes what it has of the result of
// a warpgroup's multiplication, in that order: of each 8 columns two of its row and two of the row 8
// below. The loads of 32 columns by a warp are whole 128-byte lines.
template <int kColumns>
__global__ void __launch_bounds__(kThreads, 2)
    TileSquaresKernel(const float* x, int64_t k, sm90::SquaresOut out) {
  const int64_t chunk = blockIdx.x / out.column_tiles;  // over all matrices
  const int tile = static_cast<int>(blockIdx.x % out.column_tiles);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = sm90::SquaresOut::kWarpRows * warp;
  const float* from = x + (chunk * sm90::SquaresOut::kChunkRows + row + lane / 4) * k +
                      int64_t{tile} * kColumns + 2 * (lane % 4);
  float squares = 0;
#pragma unroll
  for (int round = 0; round < kColumns / 32; ++round) {
    float2 d[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      d[i] = *reinterpret_cast<const float2*>(from + i % 2 * 8 * k + 32 * round + i / 2 * 8);
    squares += sm90::SumSquares16([&](int i) { return i % 2 == 0 ? d[i / 2].x : d[i / 2].y; });
  }
  const int matrix = static_cast<int>(chunk / out.chunks);
  out.Store(matrix, static_cast<int>(chunk % out.chunks) * sm90::SquaresOut::kChunkRows + row, tile,
            squares);
}

}  // namespace

cudaError_t TileSquares(const TileSquaresArgs& a, cudaStream_t stream) {
  if ((a.columns != 128 && a.columns != 256) || a.n % sm90::SquaresOut::kChunkRows != 0 ||
      a.k % a.columns != 0 || reinterpret_cast<uintptr_t>(a.x) % sizeof(float2) != 0)
    return cudaErrorInvalidValue;
  const sm90::SquaresOut out = {a.squares, static_cast<int>(a.n / sm90::SquaresOut::kChunkRows),
                                static_cast<int>(a.k / a.columns)};
  const int64_t blocks = a.matrices * out.chunks * out.column_tiles;
  if (blocks == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(blocks);
  if (a.columns == 256) {
    TileSquaresKernel<256><<<grid, kThreads, 0, stream>>>(a.x, a.k, out);
  } else {
    TileSquaresKernel<128><<<grid, kThreads, 0, stream>>>(a.x, a.k, out);
  }
  return cudaGetLastError();
}

}  // namespace yardmaster
