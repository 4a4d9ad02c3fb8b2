#include "kernels/grouped_gemm/tile_squares.h"

#include "kernels/grouped_gemm/sm90_squares.cuh"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

// The two numbers of a thread among those of four neighbours, each of which has four consecutive
// ones: of columns 4 q to 4 q + 3, q the place of the lane among the four. `group`: which 8 of the 16
// columns; the thread's are 2 q and 2 q + 1 of them.
__device__ __forceinline__ float2 FromNeighbours(const float4& v, int group) {
  const int lane = static_cast<int>(threadIdx.x) % 32, q = lane % 4;
  const int from = lane - q + 2 * group + q / 2;
  const float x = __shfl_sync(~0u, v.x, from), y = __shfl_sync(~0u, v.y, from);
  const float z = __shfl_sync(~0u, v.z, from), w = __shfl_sync(~0u, v.w, from);
  return q % 2 == 0 ? make_float2(x, y) : make_float2(z, w);
}

// A block for 128 rows of a tile, a warp for 16 of them. A thread squares what it has of the result
// of a warpgroup's multiplication, in that order: of each 8 columns two of its row and two of the row
// 8 below. Loads are of 16 bytes, exchanged among four lanes: with the 8 bytes that a thread needs
// 3.7 instead of 4.4 TB/s.
template <int kColumns>
__global__ void __launch_bounds__(kThreads, 3)
    TileSquaresKernel(const float* x, int64_t k, sm90::SquaresOut out) {
  const int64_t chunk = blockIdx.x / out.column_tiles;  // over all matrices
  const int tile = static_cast<int>(blockIdx.x % out.column_tiles);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = sm90::SquaresOut::kWarpRows * warp;
  const float* from = x + (chunk * sm90::SquaresOut::kChunkRows + row + lane / 4) * k +
                      int64_t{tile} * kColumns + 4 * (lane % 4);
  float squares = 0;
#pragma unroll
  for (int round = 0; round < kColumns / 32; ++round) {
    float4 loaded[2][2];  // 16 columns; the row, the row 8 below
#pragma unroll
    for (int i = 0; i < 4; ++i)
      loaded[i / 2][i % 2] =
          *reinterpret_cast<const float4*>(from + i % 2 * 8 * k + 32 * round + i / 2 * 16);
    float2 d[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) d[i] = FromNeighbours(loaded[i / 4][i % 2], i / 2 % 2);
    squares += sm90::SumSquares16([&](int i) { return i % 2 == 0 ? d[i / 2].x : d[i / 2].y; });
  }
  const int matrix = static_cast<int>(chunk / out.chunks);
  out.Store(matrix, static_cast<int>(chunk % out.chunks) * sm90::SquaresOut::kChunkRows + row, tile,
            squares);
}

}  // namespace

cudaError_t TileSquares(const TileSquaresArgs& a, cudaStream_t stream) {
  if ((a.columns != 128 && a.columns != 256) || a.n % sm90::SquaresOut::kChunkRows != 0 ||
      a.k % a.columns != 0 || reinterpret_cast<uintptr_t>(a.x) % sizeof(float4) != 0)
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
