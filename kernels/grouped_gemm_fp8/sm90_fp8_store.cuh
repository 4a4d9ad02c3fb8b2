// File: kernels/grouped_gemm_fp8/sm90_fp8_store.cuh
//
// How a warp of the FP8 grouped GEMM brings its 16 x 128 sums to memory. No warp waits for another.
//   RowStore       BF16: through shared memory, 64 columns at a time, to stores of 16 bytes a lane,
//                  whole 128-byte lines. Rows beyond a group's end are left out.
//   GradientStore  FP32: through shared memory, 32 columns at a time, to TMA stores; beta 1 adds
//                  with TMA reductions.
#pragma once

#include <cuda_bf16.h>

#include "kernels/common/ptx_sm90.cuh"
#include "kernels/grouped_gemm/sm90_squares.cuh"
#include "kernels/grouped_gemm_fp8/sm90_fp8_config.h"

namespace yardmaster::sm90fp8 {

// Where a warp's sums go.
struct Place {
  int row = 0;     // first of 16; of ragged rows: of the whole matrix, else of the expert's
  int rows = 0;    // how many are there; 0: nothing to store
  int column = 0;  // first of 128
  int expert = 0;
};

// A matrix of BF16 with rows `ld` apart.
struct Bf16Matrix {
  __nv_bfloat16* data = nullptr;
  int64_t ld = 0;
};

class RowStore {
 public:
  static constexpr int kBytes = 16 * 128;  // per warp

  __device__ __forceinline__ RowStore(const Bf16Matrix& y, const Bf16Matrix& c, int columns,
                                      sm90::Shared buffer)
      : y_(y), c_(c), columns_(columns), buffer_(buffer) {}

  __device__ __forceinline__ void Write(const Place& place, const float (&d)[64]) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      WriteShared(d, half);
      __syncwarp();
      const int column = place.column + 64 * half + 8 * (lane % 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 4 * i + lane / 8;
        uint4 v;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(buffer_ + row * 128 + ((lane % 8 ^ row % 8) << 4))
                     : "memory");
        if (row < place.rows && column < columns_)
          *reinterpret_cast<uint4*>(y_.data + (place.row + row) * y_.ld + column) = v;
      }
      __syncwarp();
    }
  }

  // d += c, where there is something of it.
  __device__ __forceinline__ void Add(const Place& place, float (&d)[64]) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 8 * half + lane / 4;
      const __nv_bfloat16* from =
          c_.data + (place.row + row) * c_.ld + place.column + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        if (row < place.rows && place.column + 8 * j < columns_) {
          const float2 v =
              __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from + 8 * j));
          d[4 * j + 2 * half] += v.x;
          d[4 * j + 2 * half + 1] += v.y;
        }
      }
    }
  }

 private:
  // Sixteen rows of 64 columns; the 16-byte piece XOR row % 8, so that rows fall into different
  // banks.
  __device__ __forceinline__ void WriteShared(const float (&d)[64], int half) const {
    const int lane = threadIdx.x % 32, row = lane % 16;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      uint32_t v[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int i = 4 * (8 * half + 2 * pair) + 2 * m;
        v[m] = sm90::PackBf16(d[i], d[i + 1]);
      }
      const int piece = 2 * pair + lane / 16;
      sm90::StoreMatrix4(buffer_ + row * 128 + ((piece ^ row % 8) << 4), v[0], v[1], v[2], v[3]);
    }
  }

  const Bf16Matrix y_, c_;
  const int columns_;
  const sm90::Shared buffer_;
};

// The sums are four chunks of 32 columns, d[16 c] to d[16 c + 15] of a thread; of a warp kBuffers are
// under way. kSquares: the squares of what is written are added up (sm90_squares.cuh), beta 0 only.
template <int kBuffers, bool kSquares = false>
class GradientStore {
 public:
  static constexpr int kChunks = 4;
  static constexpr int kAtOnce = kBuffers;      // chunks that need not wait for others of theirs
  static constexpr int kChunkBytes = 16 * 128;  // what one copy stores: 16 rows of 32 columns
  static constexpr int kBytes = kBuffers * kChunkBytes;

  // `columns` of the matrix; its rows are cut by the map.
  __device__ __forceinline__ GradientStore(const CUtensorMap* map, int columns, bool accumulate,
                                           const sm90::SquaresOut& squares, sm90::Shared buffer)
      : map_(map),
        columns_(columns),
        accumulate_(accumulate),
        squares_out_(squares),
        buffer_(buffer) {}

  // Chunks `from` to `to`, constants; a tile's in turn. Afterwards their sums may change.
  __device__ __forceinline__ void Write(const Place& place, const float (&d)[64], int from = 0,
                                        int to = kChunks) {
    const bool leader = threadIdx.x % 32 == 0;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if (chunk < from || chunk >= to) continue;
      if (leader) sm90::BulkWaitRead<kBuffers - 1>();
      __syncwarp();
      const sm90::Shared buffer = buffer_ + next_ * kChunkBytes;
      next_ = next_ + 1 == kBuffers ? 0 : next_ + 1;
      WriteShared(buffer, d, chunk);
      sm90::FenceAsyncShared();
      __syncwarp();
      const int column = place.column + 32 * chunk;
      if (leader) {
        if (place.rows > 0 && column < columns_) {
          if (accumulate_) {
            sm90::TmaReduceAdd(map_, buffer, column, place.row, place.expert);
          } else {
            sm90::TmaStore(map_, buffer, column, place.row, place.expert);
          }
        }
        sm90::BulkCommit();
      }
      if constexpr (kSquares) AddSquares(place, d, chunk);
    }
  }

  __device__ __forceinline__ void Finish() const {
    if (threadIdx.x % 32 == 0) sm90::BulkWaitAll();
  }

 private:
  __device__ __forceinline__ void AddSquares(const Place& place, const float (&d)[64], int chunk) {
    const float sum = sm90::SumSquares16([&](int i) { return d[16 * chunk + i]; });
    squares_ = chunk == 0 ? sum : squares_ + sum;
    if (chunk == kChunks - 1 && place.rows > 0 && place.column < columns_)
      squares_out_.Store(place.expert, place.row, place.column / kTileColumns, squares_);
  }

  // Odd rows write their column groups in another order (0 <-> 2, 1 <-> 3), so that the four rows
  // that go to shared memory together fall into different banks.
  __device__ __forceinline__ static void WriteShared(sm90::Shared buffer, const float (&d)[64],
                                                     int chunk) {
    const int lane = threadIdx.x % 32, row = lane / 4;
    const bool odd = row & 1;
    const sm90::Shared to = buffer + row * 128 + lane % 2 * 8;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int group = odd ? j ^ 2 : j;
      const sm90::Shared at = to + (((2 * group + lane % 4 / 2) ^ row) << 4);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int even_i = 4 * (4 * chunk + j) + 2 * half,
                  odd_i = 4 * (4 * chunk + (j ^ 2)) + 2 * half;
        sm90::StoreShared2(at + half * 8 * 128, __float_as_uint(odd ? d[odd_i] : d[even_i]),
                           __float_as_uint(odd ? d[odd_i + 1] : d[even_i + 1]));
      }
    }
  }

  const CUtensorMap* const map_;
  const int columns_;
  const bool accumulate_;
  const sm90::SquaresOut& squares_out_;
  const sm90::Shared buffer_;
  int next_ = 0;
  float squares_ = 0;  // of the thread's part of the tile that is written
};

}  // namespace yardmaster::sm90fp8
