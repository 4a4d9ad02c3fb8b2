// File: kernels/grouped_gemm_portable/group_map.cuh
//
// Which rows a thread block works on. Tiles are numbered expert by expert; an expert has ceil(rows / kTile) of them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

struct RowTile {
  int64_t expert = -1;  // -1: there are fewer tiles than thread blocks
  int64_t begin = 0, end = 0;
};

__device__ __forceinline__ int64_t ClampedOffset(const int64_t* offsets, int64_t l, int64_t rows) {
  const int64_t o = offsets[l];
  return o < rows ? o : rows;
}

// The `index`-th tile; called by a whole warp, every lane gets the answer.
template <int kTile>
__device__ RowTile FindRowTile(const int64_t* offsets, int64_t experts, int64_t rows, int64_t index) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t base = 0; base < experts; base += 32) {
    const int64_t l = base + lane;
    int64_t begin = 0, end = 0;
    if (l < experts) {
      begin = ClampedOffset(offsets, l, rows);
      end = ClampedOffset(offsets, l + 1, rows);
    }
    const int64_t tiles = end > begin ? (end - begin + kTile - 1) / kTile : 0;
    int64_t sum = tiles;  // inclusive over the lanes
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
      const int64_t below = __shfl_up_sync(0xffffffffu, sum, d);
      if (lane >= d) sum += below;
    }
    const unsigned holds = __ballot_sync(0xffffffffu, index < sum);
    if (holds != 0) {
      const int owner = __ffs(static_cast<int>(holds)) - 1;
      const int64_t before = __shfl_sync(0xffffffffu, sum - tiles, owner);
      const int64_t owner_begin = __shfl_sync(0xffffffffu, begin, owner), owner_end = __shfl_sync(0xffffffffu, end, owner);
      const int64_t first = owner_begin + (index - before) * kTile;
      return {base + owner, first, first + kTile < owner_end ? first + kTile : owner_end};
    }
    index -= __shfl_sync(0xffffffffu, sum, 31);
  }
  return {};
}

}  // namespace yardmaster
