// File: kernels/grouped_gemm_fp8/sm90_fp8_store.cuh
//
// How a warp of the FP8 grouped GEMM brings its 16 x 128 outputs to memory: registers -> shared
// memory, in chunks of 8 rows of 128 bytes -> TMA store, or reduction for beta 1. No warp waits for
// another. A chunk of ragged rows is cut by its coordinates (RaggedRowsMap of
// kernels/common/tensor_map.h). What there is to store decides about the copies alone; registers
// are read on one straight path, beside multiplications in flight.
#pragma once

#include <cuda_bf16.h>

#include "kernels/common/ptx_sm90.cuh"
#include "kernels/grouped_gemm_fp8/sm90_fp8_config.h"

namespace yardmaster::sm90fp8 {

// Where a warp's outputs go.
struct Place {
  int row = 0;     // first of 16; ragged: of the whole matrix, else of the expert's
  int rows = 0;    // how many are there; 0: nothing to store
  int column = 0;  // first of 128
  int expert = 0;
};

struct Addend {
  const __nv_bfloat16* data = nullptr;
  int64_t ld = 0;
};

template <bool kRagged, bool kFp32>
class WarpStore {
 public:
  static constexpr int kChunkColumns = kFp32 ? 32 : 64;
  static constexpr int kColumnChunks = kTileColumns / kChunkColumns;

  __device__ __forceinline__ WarpStore(const CUtensorMap* map, sm90::Shared buffer, int columns,
                                       bool accumulate)
      : map_(map), buffer_(buffer), columns_(columns), accumulate_(accumulate) {}

  __device__ __forceinline__ void Write(const Place& place, const float (&d)[64]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int c = 0; c < kColumnChunks; ++c) {
        const sm90::Shared buffer = Acquire();
        if constexpr (kFp32) {
          WriteFp32(buffer, d, half, c);
        } else {
          WriteBf16(buffer, d, half, c);
        }
        Copy(place, buffer, half, c);
      }
    }
  }

  // d += c, where there is something of it.
  __device__ __forceinline__ void Add(const Place& place, const Addend& c, float (&d)[64]) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 8 * half + lane / 4;
      const __nv_bfloat16* from = c.data + (place.row + row) * c.ld + place.column + 2 * (lane % 4);
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

  __device__ __forceinline__ void Finish() const {
    if (threadIdx.x % 32 == 0) sm90::BulkWaitAll();
  }

 private:
  // The next buffer, when its last copy has been read.
  __device__ __forceinline__ sm90::Shared Acquire() {
    if (threadIdx.x % 32 == 0) sm90::BulkWaitRead<kStoreChunks - 1>();
    __syncwarp();
    const sm90::Shared buffer = buffer_ + next_ * kChunkBytes;
    next_ = next_ + 1 == kStoreChunks ? 0 : next_ + 1;
    return buffer;
  }

  __device__ __forceinline__ void Copy(const Place& place, sm90::Shared buffer, int half,
                                       int chunk) const {
    sm90::FenceAsyncShared();
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    const int column = place.column + chunk * kChunkColumns, row = place.row + 8 * half;
    const int valid = min(8, place.rows - 8 * half);
    if (valid > 0 && column < columns_) {
      const int c1 = kRagged ? 8 - valid : row, c2 = kRagged ? row + valid : place.expert;
      if (accumulate_) {
        sm90::TmaReduceAdd(map_, buffer, column, c1, c2);
      } else {
        sm90::TmaStore(map_, buffer, column, c1, c2);
      }
    }
    sm90::BulkCommit();
  }

  // Eight rows of 64 columns, swizzled as the map expects: 16-byte piece XOR row.
  __device__ __forceinline__ static void WriteBf16(sm90::Shared buffer, const float (&d)[64],
                                                   int half, int chunk) {
    const int lane = threadIdx.x % 32, row = lane % 8;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      uint32_t v[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int j = 4 * (8 * chunk + 4 * t + m) + 2 * half;
        v[m] = sm90::PackBf16(d[j], d[j + 1]);
      }
      sm90::StoreMatrix4(buffer + row * 128 + (((4 * t + lane / 8) ^ row) << 4), v[0], v[1], v[2],
                         v[3]);
    }
  }

  // Eight rows of 32 columns. Odd rows write their column groups in another order (0 <-> 2, 1 <->
  // 3), so that the four rows that go to shared memory together fall into different banks.
  __device__ __forceinline__ static void WriteFp32(sm90::Shared buffer, const float (&d)[64],
                                                   int half, int chunk) {
    const int lane = threadIdx.x % 32, row = lane / 4;
    const bool odd = row & 1;
    const sm90::Shared to = buffer + row * 128 + lane % 2 * 8;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int even_at = 4 * (4 * chunk + j) + 2 * half,
                odd_at = 4 * (4 * chunk + (j ^ 2)) + 2 * half;
      const int group = odd ? j ^ 2 : j;
      const float a = odd ? d[odd_at] : d[even_at], b = odd ? d[odd_at + 1] : d[even_at + 1];
      sm90::StoreShared2(to + (((2 * group + lane % 4 / 2) ^ row) << 4), __float_as_uint(a),
                         __float_as_uint(b));
    }
  }

  const CUtensorMap* const map_;
  const sm90::Shared buffer_;
  const int columns_;  // of the matrix
  const bool accumulate_;
  int next_ = 0;
};

}  // namespace yardmaster::sm90fp8
