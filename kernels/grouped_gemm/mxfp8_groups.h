// File: kernels/grouped_gemm/mxfp8_groups.h
//
// A grouped product of MXFP8 operands as cuBLASLt sees it: which addresses, sizes and leading
// dimensions every group has. Pure, on the device in grouped_gemm_mxfp8_sm100_cublaslt.cu; on the
// cpu a test multiplies from them (tests/kernels/mxfp8_groups_test.cc).
//
//   rows     y_RN   = x_RK w_LNK[l]^T + beta * c   codes of x [R, K], of w [L, N, K]
//   weight   dw_LNK = dy_RN^T x_RK + beta * dw     codes of dy [N, P], of x [K, P]: transposed
//                                                  copies, groups aligned to 128 along P
//
// cuBLASLt is column-major: a row-major [rows, columns] matrix is its [columns, rows]. So both are
// D = op_T(A) B, the contraction contiguous in A and in B, as its 8-bit kernels take them ("TN"):
//   rows     y^T [N, r]  = op_T(w [K, N]) x^T [K, r]
//   weight   dw^T [K, N] = op_T(x [p, K]) dy [p, N]    p: r rounded up to 128; the codes there are 0
// Scales lie in tiles of 128 x 4 (512 bytes), a matrix of its own for every group
// (src/ops/quantize.h: ScalesToTiles, WeightScalesToTiles, ColumnScalesToTiles).
#pragma once

#include <cstdint>

namespace yardmaster {

struct Mxfp8Matrix {
  const uint8_t* codes = nullptr;  // E4M3, 16-byte aligned
  const uint8_t* tiles = nullptr;  // E8M0, 16-byte aligned
};

struct Mxfp8Rows {
  int64_t n = 0, k = 0;  // multiples of 32
  Mxfp8Matrix x, w;
  char* y = nullptr;  // BF16, rows y_ld apart; addresses and y_ld in multiples of 16 bytes
  const char* c = nullptr;
  int64_t y_ld = 0, c_ld = 0;
};

struct Mxfp8Weight {
  int64_t n = 0, k = 0;  // multiples of 32
  int64_t padded = 0;    // P
  Mxfp8Matrix dy, x;
  float* dw = nullptr;
};

// Where a group lies.
struct Mxfp8Range {
  int64_t index = 0;
  int64_t begin = 0, rows = 0;  // of the ragged rows
  int64_t first_block = 0;      // of the aligned row space, in blocks of 128 rows
};

struct Mxfp8Group {
  const uint8_t *a, *b, *a_scales, *b_scales;
  const void* c;
  void* d;
  int64_t a_rows, a_columns, a_ld, b_rows, b_columns, b_ld, d_rows, d_columns, d_ld, c_ld;
};

constexpr int64_t Blocks128(int64_t n) { return (n + 127) / 128; }

inline constexpr int64_t kMxTileBytes = 512;

constexpr Mxfp8Group GroupOf(const Mxfp8Rows& p, const Mxfp8Range& g) {
  const int64_t tile_columns = Blocks128(p.k);  // four runs of 32 each
  constexpr int64_t kBf16 = 2;
  return {.a = p.w.codes + g.index * p.n * p.k,
          .b = p.x.codes + g.begin * p.k,
          .a_scales = p.w.tiles + g.index * Blocks128(p.n) * tile_columns * kMxTileBytes,
          .b_scales = p.x.tiles + g.first_block * tile_columns * kMxTileBytes,
          .c = p.c + kBf16 * g.begin * p.c_ld,
          .d = p.y + kBf16 * g.begin * p.y_ld,
          .a_rows = p.k,
          .a_columns = p.n,
          .a_ld = p.k,
          .b_rows = p.k,
          .b_columns = g.rows,
          .b_ld = p.k,
          .d_rows = p.n,
          .d_columns = g.rows,
          .d_ld = p.y_ld,
          .c_ld = p.c_ld};
}

constexpr Mxfp8Group GroupOf(const Mxfp8Weight& p, const Mxfp8Range& g) {
  const int64_t column = g.first_block * 128, length = Blocks128(g.rows) * 128;
  float* const dw = p.dw + g.index * p.n * p.k;
  return {.a = p.x.codes + column,
          .b = p.dy.codes + column,
          .a_scales = p.x.tiles + g.first_block * Blocks128(p.k) * kMxTileBytes,
          .b_scales = p.dy.tiles + g.first_block * Blocks128(p.n) * kMxTileBytes,
          .c = dw,
          .d = dw,
          .a_rows = length,
          .a_columns = p.k,
          .a_ld = p.padded,
          .b_rows = length,
          .b_columns = p.n,
          .b_ld = p.padded,
          .d_rows = p.k,
          .d_columns = p.n,
          .d_ld = p.k,
          .c_ld = p.k};
}

}  // namespace yardmaster
