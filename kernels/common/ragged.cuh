// File: kernels/common/ragged.cuh
//
// Blocks of 128 ragged rows, each of one group, in a grid that the host sizes without knowing the groups.
// Block `index` of the grid is a block of the aligned row space, in which every group begins at a multiple of
// 128 (src/ops/quantize.h).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

inline constexpr int kRaggedBlock = 128;

struct RaggedPlace {
  int64_t row0;  // first row in the ragged buffer
  int rows;      // of the group in this block, 1..128; 0: the grid goes beyond the last group
};

// Of the group that has block `index` of the aligned row space: use(owner, begin, rows, blocks, end), `owner` being
// the lane whose begin, rows, blocks, and end of the blocks in that space, are the group's. {} beyond the last group. All
// lanes of a warp call it together. Inside the loop: the compiler then makes of it what it made of one function.
template <class Result, class Use>
__device__ __forceinline__ Result WithOwner(const int64_t* offsets, int64_t L, int index, const Use& use) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  int before = 0;  // blocks of the groups before this batch of 32
  for (int64_t l0 = 0; l0 < L; l0 += 32) {
    const int64_t l = l0 + lane;
    const int64_t begin = l < L ? offsets[l] : 0, rows = l < L ? offsets[l + 1] - begin : 0;
    const int blocks = static_cast<int>((rows + kRaggedBlock - 1) / kRaggedBlock);
    int end = blocks;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, end, step);
      if (lane >= step) end += other;
    }
    end += before;
    const unsigned reached = __ballot_sync(~0u, index < end);
    if (reached != 0) return use(__ffs(static_cast<int>(reached)) - 1, begin, rows, blocks, end);
    before = __shfl_sync(~0u, end, 31);
  }
  return {};
}

// All lanes of a warp call it together and get the same answer. offsets null: one group of R rows.
__device__ __forceinline__ RaggedPlace FindRaggedBlock(const int64_t* offsets, int64_t L, int64_t R,
                                                       unsigned block) {
  const int index = static_cast<int>(block);
  if (offsets == nullptr) {
    const int64_t rest = R - int64_t{index} * kRaggedBlock;
    return {int64_t{index} * kRaggedBlock, rest <= 0             ? 0
                                           : rest < kRaggedBlock ? static_cast<int>(rest)
                                                                 : kRaggedBlock};
  }
  return WithOwner<RaggedPlace>(
      offsets, L, index, [&](int owner, int64_t begin, int64_t rows, int blocks, int end) -> RaggedPlace {
        const int64_t in_group = int64_t{index - (end - blocks)} * kRaggedBlock, rest = rows - in_group;
        const int64_t row0 = __shfl_sync(~0u, begin + in_group, owner);
        const int left = __shfl_sync(~0u, rest < kRaggedBlock ? static_cast<int>(rest) : kRaggedBlock, owner);
        return {row0, left};
      });
}

// Blocks of the aligned row space for any groups.
inline int64_t RaggedBlocks(int64_t R, int64_t L) { return (R + L * (kRaggedBlock - 1)) / kRaggedBlock; }

}  // namespace yardmaster
