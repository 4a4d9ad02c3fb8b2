// MXFP8 scales of our layouts, rows fastest, into the tiles of 128 rows x 4 scales that cuBLASLt reads:
// src/ops/quantize.h says the order, src/ops/cpu/quantize_cpu.cc is the reference, byte for byte
// (tests/cuda/quantize_test.cc). One launch for all groups, whose offsets are read on the device. A block of
// 128 threads writes up to kSlots tiles: a thread reads the four scales of its row, four lines of 128 bytes
// for all of them, and the tiles leave through shared memory in 16 bytes a lane. Memory-bound: a byte in and
// a byte out for each scale.
#include "kernels/common/ragged.cuh"
#include "kernels/quantize/quantize.h"

namespace yardmaster {
namespace {

constexpr int kSlots = 8;
constexpr int kTileBytes = 512;

int64_t CeilDiv(int64_t n, int64_t d) { return (n + d - 1) / d; }

// Where a tile comes from: rows x runs scales from `from` on, run c at from + c * ld. The rest of the tile is
// zeros.
struct TileSource {
  const uint8_t* from;
  int64_t ld;
  int rows, runs;  // at most 128 and 4
  uint8_t* to;     // 16-byte aligned
};

// `tile(j)` for j in [0, n), the same for all threads.
template <class Tile>
__device__ __forceinline__ void WriteTiles(int n, const Tile& tile) {
  __shared__ __align__(16) uint32_t words[kSlots][kTileBytes / 4];
  const int r = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int j = 0; j < kSlots; ++j) {
    if (j >= n) break;
    const TileSource t = tile(j);
    uint32_t four = 0;
    if (r < t.rows) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (c < t.runs) four |= static_cast<uint32_t>(t.from[c * t.ld + r]) << 8 * c;
      }
    }
    words[j][r % 32 * 4 + r / 32] = four;
  }
  __syncthreads();
  // 32 packs of 16 bytes a tile: warp w writes tiles w, w + 4.
  const int lane = r % 32;
  for (int j = r / 32; j < n; j += kRaggedBlock / 32) {
    reinterpret_cast<uint4*>(tile(j).to)[lane] = reinterpret_cast<const uint4*>(words[j])[lane];
  }
}

__global__ void __launch_bounds__(kRaggedBlock)
    RowTilesKernel(const uint8_t* scales, int64_t ld, int64_t R, int64_t runs, const int64_t* offsets,
                   int64_t L, int64_t tile_columns, uint8_t* tiles) {
  const RaggedPlace place = FindRaggedBlock(offsets, L, R, blockIdx.x);
  if (place.rows == 0) return;
  const int64_t first = int64_t{blockIdx.y} * kSlots;
  const int64_t left = tile_columns - first;
  WriteTiles(static_cast<int>(left < kSlots ? left : kSlots), [&](int j) {
    const int64_t column = first + j, rest = runs - column * 4;
    return TileSource{scales + column * 4 * ld + place.row0, ld, place.rows,
                      static_cast<int>(rest < 4 ? rest : 4),
                      tiles + (int64_t{blockIdx.x} * tile_columns + column) * kTileBytes};
  });
}

__global__ void __launch_bounds__(kRaggedBlock)
    WeightTilesKernel(const uint8_t* scales, int64_t N, int64_t runs, int64_t row_tiles, int64_t tile_columns,
                      uint8_t* tiles) {
  const int64_t l = blockIdx.x / row_tiles, row0 = blockIdx.x % row_tiles * kRaggedBlock;
  const int64_t first = int64_t{blockIdx.y} * kSlots;
  const int64_t left = tile_columns - first, rows = N - row0;
  WriteTiles(static_cast<int>(left < kSlots ? left : kSlots), [&](int j) {
    const int64_t column = first + j, rest = runs - column * 4;
    return TileSource{scales + (l * runs + column * 4) * N + row0, N,
                      static_cast<int>(rows < kRaggedBlock ? rows : kRaggedBlock),
                      static_cast<int>(rest < 4 ? rest : 4),
                      tiles + (int64_t{blockIdx.x} * tile_columns + column) * kTileBytes};
  });
}

struct AlignedGroup {
  int64_t first, blocks;  // in the aligned row space, in blocks of 128; 0 blocks: beyond the last group
};

// The group that owns a block of the aligned row space. All lanes of a warp call it together.
__device__ __forceinline__ AlignedGroup FindAlignedGroup(const int64_t* offsets, int64_t L, int64_t R,
                                                         int64_t block) {
  if (offsets == nullptr) return {0, (R + kRaggedBlock - 1) / kRaggedBlock};
  return WithOwner<AlignedGroup>(
      offsets, L, static_cast<int>(block),
      [](int owner, int64_t, int64_t, int blocks, int end) -> AlignedGroup {
        const int first = __shfl_sync(~0u, end - blocks, owner), count = __shfl_sync(~0u, blocks, owner);
        return {first, count};
      });
}

// The contraction of a transposed copy is the rows of the groups: a block of 128 columns is one tile of every
// 128 rows.
__global__ void __launch_bounds__(kRaggedBlock)
    ColumnTilesKernel(const uint8_t* scales, int64_t ld, int64_t C, int64_t R, const int64_t* offsets,
                      int64_t L, int64_t row_tiles, uint8_t* tiles) {
  const int64_t block = blockIdx.x;
  const AlignedGroup group = FindAlignedGroup(offsets, L, R, block);
  if (group.blocks == 0) return;
  const int64_t first = int64_t{blockIdx.y} * kSlots, left = row_tiles - first;
  WriteTiles(static_cast<int>(left < kSlots ? left : kSlots), [&](int j) {
    const int64_t row_tile = first + j, rest = C - row_tile * kRaggedBlock;
    const int64_t index = group.first * row_tiles + row_tile * group.blocks + (block - group.first);
    return TileSource{scales + block * 4 * ld + row_tile * kRaggedBlock, ld,
                      static_cast<int>(rest < kRaggedBlock ? rest : kRaggedBlock), 4,
                      tiles + index * kTileBytes};
  });
}

dim3 Grid(int64_t blocks, int64_t slots) {
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(CeilDiv(slots, kSlots))};
}

}  // namespace

cudaError_t MxScalesToTiles(const uint8_t* scales, int64_t ld, int64_t R, int64_t runs,
                            const int64_t* offsets, int64_t L, uint8_t* tiles, cudaStream_t stream) {
  if (R == 0 || runs == 0) return cudaSuccess;
  const int64_t tile_columns = CeilDiv(runs, 4);
  RowTilesKernel<<<Grid(RaggedBlocks(R, L), tile_columns), kRaggedBlock, 0, stream>>>(
      scales, ld, R, runs, offsets, L, tile_columns, tiles);
  return cudaGetLastError();
}

cudaError_t MxWeightScalesToTiles(const uint8_t* scales, int64_t L, int64_t N, int64_t runs, uint8_t* tiles,
                                  cudaStream_t stream) {
  if (L == 0 || N == 0 || runs == 0) return cudaSuccess;
  const int64_t row_tiles = CeilDiv(N, kRaggedBlock), tile_columns = CeilDiv(runs, 4);
  WeightTilesKernel<<<Grid(L * row_tiles, tile_columns), kRaggedBlock, 0, stream>>>(
      scales, N, runs, row_tiles, tile_columns, tiles);
  return cudaGetLastError();
}

cudaError_t MxColumnScalesToTiles(const uint8_t* scales, int64_t ld, int64_t C, int64_t R,
                                  const int64_t* offsets, int64_t L, uint8_t* tiles, cudaStream_t stream) {
  if (R == 0 || C == 0) return cudaSuccess;
  const int64_t row_tiles = CeilDiv(C, kRaggedBlock);
  ColumnTilesKernel<<<Grid(RaggedBlocks(R, L), row_tiles), kRaggedBlock, 0, stream>>>(
      scales, ld, C, R, offsets, L, row_tiles, tiles);
  return cudaGetLastError();
}

}  // namespace yardmaster
