// File: kernels/grouped_gemm/sm90_store.cuh
//
// How a consumer warpgroup of the Hopper grouped GEMM brings its 64 x 256 outputs to memory:
// registers -> shared memory (16 KB, two buffers) -> TMA store.
//   transposed  forward, dgrad: D's columns are rows of memory. The warpgroup writes 64 memory rows
//               of 64 features (128 bytes) with transposing stmatrix and stores them with one copy,
//               cut at the expert's end.
//   direct      wgrad: each warp writes and stores its own 16 rows, 128 bytes of columns at a time,
//               without waiting for the other warps; beta 1 adds with TMA reductions.
// What there is to store decides about the copies alone; registers are read on one straight path,
// beside multiplications in flight.
#pragma once

#include "kernels/common/ptx_sm90.cuh"
#include "kernels/grouped_gemm/sm90_config.h"
#include "kernels/grouped_gemm/sm90_squares.cuh"

namespace yardmaster::sm90 {

template <bool kTransposed, bool kFp32, bool kSquares = false>
class TileStore {
 public:
  static constexpr int kChunkBytes = 16 * 128;  // direct: 16 rows of 128 bytes
  static constexpr int kChunkColumns = kFp32 ? 32 : 64;
  static_assert(!(kTransposed && kFp32) && (kFp32 || !kSquares));

  // A block's tile.
  struct Place {
    int m = 0;       // first row of D
    int n = 0;       // first column of D; transposed: first row of memory
    int n_size = 0;  // columns; 0: nothing to store
    int expert = 0;
    int m_extent = 0;
  };

  static constexpr int kRounds = 4;  // a packed tile is stored in as many parts

  // BF16: a tile, FP32: half of one, as it will be stored, in registers of its own: the compiler
  // would make a read of accumulators wait for all multiplications in flight.
  struct Packed {
    uint32_t word[64];
  };

  __device__ __forceinline__ TileStore(const CUtensorMap* map, Shared buffer, int group,
                                       bool accumulate)
      : map_(map), buffer_(buffer), group_(group), accumulate_(accumulate) {}

  // BF16: the first kColumns columns. FP32: the high half; `zero` is 0 and unknown to the compiler,
  // which makes the copy one.
  template <int kColumns>
  __device__ __forceinline__ static Packed Pack(const float (&d)[128], uint32_t zero) {
    Packed packed;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      if constexpr (kFp32) {
        packed.word[i] = 64 + i < kColumns / 2 ? __float_as_uint(d[64 + i]) ^ zero : 0;
      } else {
        packed.word[i] = i < kColumns / 4 ? PackBf16(d[2 * i], d[2 * i + 1]) : 0;
      }
    }
    return packed;
  }

  // A quarter of what is packed.
  __device__ __forceinline__ void WriteRound(const Place& place, const Packed& packed, int round) {
    if constexpr (kTransposed) {
      WriteRoundTransposed(place, packed, round);
    } else {
      WriteRoundDirect(place, packed, round);
    }
  }

  // FP32: columns 0 to 127, straight from the accumulators.
  // -> the squares of what the thread wrote (kSquares).
  __device__ __forceinline__ float WriteLowHalf(const Place& place, const float (&d)[128]) {
    float squares = 0;
    Packed low;
#pragma unroll
    for (int i = 0; i < 64; ++i) low.word[i] = __float_as_uint(d[i]);
#pragma unroll
    for (int chunk = 0; chunk < kRounds; ++chunk) {
      WriteChunk(place, low, chunk, chunk * kChunkColumns);
      if constexpr (kSquares) squares += RoundSquares(low, chunk);
    }
    return squares;
  }

  // Of a quarter of what is packed; FP32.
  __device__ __forceinline__ static float RoundSquares(const Packed& packed, int round) {
    return SumSquares16([&](int i) { return __uint_as_float(packed.word[16 * round + i]); });
  }

  // Of a whole tile. Nothing where there is no tile.
  __device__ __forceinline__ void WriteSquares(const SquaresOut& out, const Place& place,
                                               float squares) const {
    if (place.n_size > 0 && WarpRow(place) < place.m_extent)
      out.Store(place.expert, WarpRow(place), place.n / kTileN, squares);
  }

  // What is left when there is no next tile.
  __device__ __forceinline__ void WriteRest(const Place& place, const Packed& packed) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) WriteRound(place, packed, round);
  }

  // Zeros over the whole tile (direct only): wgrad of an expert without rows.
  __device__ __forceinline__ void Zeros(const Place& place) {
    const int lane = threadIdx.x % 32;
    const Shared buffer = WarpBuffer();
    if (lane == 0) BulkWaitRead<0>();
    __syncwarp();
    for (int i = 8 * lane; i < kChunkBytes; i += 8 * 32) StoreShared2(buffer + i, 0, 0);
    FenceAsyncShared();
    __syncwarp();
    if (lane == 0 && WarpRow(place) < place.m_extent) {
      for (int n = 0; n < place.n_size; n += kChunkColumns) CopyChunk(place, buffer, n);
      BulkCommit();
      BulkWaitRead<0>();  // the next tile begins with this buffer
    }
  }

  __device__ __forceinline__ void Finish() {
    if (threadIdx.x % 32 == 0) BulkWaitAll();
  }

 private:
  __device__ __forceinline__ Shared WarpBuffer() const {
    return buffer_ + threadIdx.x / 32 % 4 * (kStoreBytes / 4);
  }

  __device__ __forceinline__ int WarpRow(const Place& place) const {
    return place.m + 64 * group_ + 16 * (threadIdx.x / 32 % 4);
  }

  __device__ __forceinline__ void WriteRoundTransposed(const Place& place, const Packed& packed,
                                                       int round) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32 % 4;
    const bool leader = threadIdx.x % 128 == 0;
    const Shared buffer = buffer_ + round % 2 * (kStoreBytes / 2);
    if (leader) BulkWaitRead<1>();
    NamedBarrier(1 + group_, 128);
    // Lane l gives memory row l % 8 of the 8x8 matrix: columns 8 (j + l / 16) .., features 8 (l / 8
    // % 2) .. of the warp's 16.
    const int row = lane % 8 + lane / 16 * 8;
    const int chunk = 2 * warp + lane / 8 % 2;
    const Shared to = buffer + row * 128 + ((chunk ^ (lane % 8)) << 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t* v = packed.word + 16 * round + 4 * j;
      StoreMatrix4Transposed(to + j * 16 * 128, v[0], v[1], v[2], v[3]);
    }
    FenceAsyncShared();
    NamedBarrier(1 + group_, 128);
    const int valid = min(64, place.n_size - 64 * round);
    const int m = place.m + 64 * group_;
    if (leader) {
      if (valid > 0 && m < place.m_extent)
        TmaStore(map_, buffer, m, 64 - valid, place.n + 64 * round + valid);
      BulkCommit();
    }
  }

  __device__ __forceinline__ void WriteRoundDirect(const Place& place, const Packed& packed,
                                                   int round) {
    WriteChunk(place, packed, round, round * kChunkColumns + (kFp32 ? kTileN / 2 : 0));
  }

  // 128 bytes of columns, which begin at column n of the tile.
  __device__ __forceinline__ void WriteChunk(const Place& place, const Packed& packed, int chunk,
                                             int n) {
    const int lane = threadIdx.x % 32;
    const Shared buffer = WarpBuffer() + chunk % 2 * kChunkBytes;
    if (lane == 0) BulkWaitRead<1>();
    __syncwarp();
    if constexpr (kFp32) {
      WriteFp32(buffer, lane, packed.word, chunk);
    } else {
      WriteBf16(buffer, lane, packed.word, chunk);
    }
    FenceAsyncShared();
    __syncwarp();
    if (lane == 0) {
      if (WarpRow(place) < place.m_extent && n < place.n_size) CopyChunk(place, buffer, n);
      BulkCommit();
    }
  }

  __device__ __forceinline__ void CopyChunk(const Place& place, Shared buffer, int n) const {
    if (accumulate_) {
      TmaReduceAdd(map_, buffer, place.n + n, WarpRow(place), place.expert);
    } else {
      TmaStore(map_, buffer, place.n + n, WarpRow(place), place.expert);
    }
  }

  // Sixteen rows of 64 columns, swizzled as the map expects.
  __device__ __forceinline__ static void WriteBf16(Shared buffer, int lane, const uint32_t* d,
                                                   int chunk) {
    const int row = lane % 16;
    const int half = lane / 16;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const uint32_t* v = d + 2 * (8 * chunk + 2 * pair);
      StoreMatrix4(buffer + row * 128 + (((2 * pair + half) ^ (row & 7)) << 4), v[0], v[1], v[2],
                   v[3]);
    }
  }

  // Sixteen rows of 32 columns. Odd rows write their column groups in another order (0 <-> 2, 1 <->
  // 3), so that the four rows that go to shared memory together fall into different banks.
  __device__ __forceinline__ static void WriteFp32(Shared buffer, int lane, const uint32_t* d,
                                                   int chunk) {
    const int row = lane / 4;
    const int pair = lane % 4;
    const bool odd = row & 1;
    const Shared row_address = buffer + row * 128 + (pair % 2) * 8;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t* even_group = d + 4 * (4 * chunk + j);
      const uint32_t* odd_group = d + 4 * (4 * chunk + (j ^ 2));
      const int group = odd ? j ^ 2 : j;
      const Shared to = row_address + (((2 * group + pair / 2) ^ row) << 4);
      StoreShared2(to, odd ? odd_group[0] : even_group[0], odd ? odd_group[1] : even_group[1]);
      StoreShared2(to + 8 * 128, odd ? odd_group[2] : even_group[2],
                   odd ? odd_group[3] : even_group[3]);
    }
  }

  const CUtensorMap* const map_;
  const Shared buffer_;
  const int group_;
  const bool accumulate_;
};

}  // namespace yardmaster::sm90
