// File: src/ops/cuda/workspaces.h
//
// Sizes of the CUDA versions' scratch, from shapes alone: the dry device plans with them in every build.
#pragma once

#include <algorithm>
#include <cstdint>

namespace yardmaster::cuda {

// Items of a chunk of a counting sort (kernels/common/counting_sort.cuh).
inline constexpr int64_t kSortChunk = 256;
inline int64_t SortChunks(int64_t items) { return (items + kSortChunk - 1) / kSortChunk; }

// Ids below V are sorted in passes over digits of equally many bits, at most 10.
struct EmbeddingDigits {
  explicit EmbeddingDigits(int64_t V) {
    int id_bits = 1;
    while (V > int64_t{1} << id_bits) ++id_bits;
    passes = (id_bits + 9) / 10;
    bits = (id_bits + passes - 1) / passes;
  }
  int64_t bins() const { return int64_t{1} << bits; }
  int passes = 1, bits = 1;
};

// Tokens of a block of the router's balance losses, and such chunks of a sequence.
inline constexpr int64_t kBalanceChunk = 64;
inline int64_t BalanceChunks(int64_t tokens) { return (tokens + kBalanceChunk - 1) / kBalanceChunk; }

// Thread blocks that each sum a share of RMSNorm's weight gradient: for every multiprocessor of an H200 two,
// whose registers and shared memory hold wide rows, or seven for the narrow rows of latents and heads.
inline int64_t RmsNormPartials(int64_t tokens, int64_t D) {
  return std::min<int64_t>(tokens, D > 2048 ? 264 : 924);
}

// Sums of squares that come out of a weight gradient for 128 rows of a matrix [N, K]
// (kernels/grouped_gemm, and kernels/grouped_gemm_fp8), and out of the embedding's gradient for a row
// of D, from an upstream gradient whose elements have `bytes` (kernels/embedding). 0: none.
constexpr int64_t HopperGradientSquares(int64_t n, int64_t k) {
  return n % 128 == 0 && k % 256 == 0 ? k / 256 * 8 : 0;
}
constexpr int64_t Fp8GradientSquares(int64_t n, int64_t k) {
  return n % 128 == 0 && k % 128 == 0 ? k / 128 * 8 : 0;
}
constexpr int64_t EmbeddingRowSquares(int64_t bytes, int64_t D) {
  const int64_t pack = 16 / bytes;
  return D % pack == 0 ? (D + 32 * pack - 1) / (32 * pack) : 0;
}

}  // namespace yardmaster::cuda
