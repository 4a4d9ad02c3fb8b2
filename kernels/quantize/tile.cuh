// File: kernels/quantize/tile.cuh
//
// One tile of 128 rows x 128 columns, quantised by 256 threads in both directions from one read
// (kernels/quantize/quantize.h). Thread t holds rows 8 (t / 16) .. + 7 of columns 8 (t % 16) .. + 7, in
// registers. Lanes of a half-warp share rows, so that loads and row-wise stores are whole 256- and 128-byte
// lines.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/ragged.cuh"
#include "kernels/quantize/codes.cuh"
#include "kernels/quantize/sources.cuh"

namespace yardmaster {

inline constexpr int kTileThreads = 256;
inline constexpr int kTileSide = 128;

// What one tile reads.
struct TileExtent {
  int64_t row0, column0;
  int rows, columns;  // that exist, at most 128; columns a multiple of 16
};

// Where it writes. Pointers are at its first row and column; null copies are not wanted.
struct TileOutputs {
  int columns_t;  // of codes_t that are written: rows and pad rows, a multiple of 16
  uint8_t* codes;
  int64_t codes_ld;
  uint8_t* codes_t;
  int64_t codes_t_ld;
  void* scales;  // FP32: + row (blocks: one). kMx: + run * scales_ld + row
  int64_t scales_ld;
  void* scales_t;  // FP32: + column (blocks: one). kMx: + run * scales_t_ld + column
  int64_t scales_t_ld;
};

template <class T>
struct TileShared {
  static constexpr int kMaxRuns = 4;  // of 32 in a side
  alignas(16) uint8_t codes_t[kTileSide * kTileSide];
  uint32_t column_magnitude[kTileThreads / 32][kTileSide / 8 * Eight<T>::kWords];
  uint32_t row_magnitude[kTileSide * kMaxRuns];
  float row_inverse[kTileSide * kMaxRuns], column_inverse[kMaxRuns * kTileSide];
  float row_second[kTileSide], column_second[kTileSide];  // with exact scales alone
};

// The scales of a row's or a column's runs: neighbours in a warp write neighbouring bytes. (Beside each other by row they
// cost a fifth of the kernel's time: four bytes to a sector of 32.)
__device__ __forceinline__ void StoreE8m0(uint8_t* to, int64_t ld, const uint8_t (&code)[4], int runs) {
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    if (q < runs) to[q * ld] = code[q];
  }
}

// A row's codes or a column's, 8 at a time.
template <ScaleRule kRule, class T>
__device__ __forceinline__ uint2 EncodeEight(const float (&v)[8], float inverse, float second) {
  const Scaler<kRule, T> scaled(inverse, second);
  float s[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) s[j] = scaled(v[j]);
  return {E4m3x4(s[0], s[1], s[2], s[3]), E4m3x4(s[4], s[5], s[6], s[7])};
}

// `place` is called for the rest of the place once the loads are on their way: what it computes needs no
// registers before.
template <ScaleRule kRule, bool kBlocks, class Source, class Place>
__device__ __forceinline__ void QuantizeTile(const Source& source, const TileExtent& p,
                                             TileShared<typename Source::Element>& shared, Place&& place) {
  using T = typename Source::Element;
  using E = Eight<T>;
  constexpr bool kMx = kRule == ScaleRule::kMx, kSecond = Scaler<kRule, T>::kSecond;
  constexpr int kWords = E::kWords;
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31, warp = tid / 32;
  const int column_group = tid & 15, row_group = tid / 16;
  const bool in_columns = column_group * 8 < p.columns;

  E x[8];
  source.Load(p.row0 + row_group * 8, in_columns ? p.rows - row_group * 8 : 0, p.column0 + column_group * 8,
              x);

  // Largest magnitudes: of rows over 16 lanes (kMx: over 4), of columns over 8 rows here, the other half-warp
  // and the warps.
  uint32_t column[kWords];
#pragma unroll
  for (int k = 0; k < kWords; ++k) column[k] = 0;
#pragma unroll
  for (int i = 0; i < 8; i += E::kRowsOfWord) {
    uint32_t row[2] = {};
#pragma unroll
    for (int h = 0; h < E::kRowsOfWord; ++h) {
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        const uint32_t m = E::Abs(x[i + h].w[k]);
        row[h] = E::Max(row[h], m);
        column[k] = E::Max(column[k], m);
      }
    }
    uint32_t rows = E::OfRows(row[0], row[1]);
#pragma unroll
    for (int step = 1; step < (kMx ? 4 : 16); step *= 2)
      rows = E::Max(rows, __shfl_xor_sync(~0u, rows, step));
    if (kMx ? lane % 4 == 0 : lane % 16 == 0) {
#pragma unroll
      for (int h = 0; h < E::kRowsOfWord; ++h) {
        const int r = row_group * 8 + i + h;
        shared.row_magnitude[kMx ? r * 4 + column_group / 4 : r] = E::OfColumn(&rows, h);
      }
    }
  }
  if constexpr (!kBlocks) {
#pragma unroll
    for (int k = 0; k < kWords; ++k) column[k] = E::Max(column[k], __shfl_xor_sync(~0u, column[k], 16));
    if (lane < 16) {
#pragma unroll
      for (int k = 0; k < kWords; ++k) shared.column_magnitude[warp][column_group * kWords + k] = column[k];
    }
  }
  __syncthreads();

  const TileOutputs o = place();
  RunScale block;
  if constexpr (kBlocks) {
    uint32_t m = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) m = max(m, shared.row_magnitude[lane + 32 * k]);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) m = max(m, __shfl_xor_sync(~0u, m, step));
    block = ScaleOfAmax<kRule, T>(m);
    if (tid == 0) {
      if (o.codes != nullptr) *static_cast<float*>(o.scales) = block.scale;
      if (o.codes_t != nullptr) *static_cast<float*>(o.scales_t) = block.scale;
    }
  } else {
    const int at = tid % kTileSide;
    if (tid < kTileSide) {
      if constexpr (kMx) {
        uint8_t code[4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const RunScale s = ScaleOfAmax<kRule, T>(shared.row_magnitude[at * 4 + q]);
          shared.row_inverse[at * 4 + q] = s.inverse;
          code[q] = s.e8m0;
        }
        if (o.codes != nullptr && at < p.rows) {
          StoreE8m0(static_cast<uint8_t*>(o.scales) + at, o.scales_ld, code, (p.columns + 31) / 32);
        }
      } else {
        const RunScale s = ScaleOfAmax<kRule, T>(shared.row_magnitude[at]);
        shared.row_inverse[at] = s.inverse;
        if constexpr (kSecond) shared.row_second[at] = s.second;
        if (o.codes != nullptr && at < p.rows) static_cast<float*>(o.scales)[at] = s.scale;
      }
    } else {
      uint32_t m[4] = {};
#pragma unroll
      for (int w = 0; w < kTileThreads / 32; ++w) {
        uint32_t& run = m[kMx ? w / 2 : 0];
        run = max(run, E::OfColumn(shared.column_magnitude[w], at));
      }
      if constexpr (kMx) {
        uint8_t code[4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const RunScale s = ScaleOfAmax<kRule, T>(m[q]);
          shared.column_inverse[q * kTileSide + at] = s.inverse;
          code[q] = s.e8m0;
        }
        if (o.codes_t != nullptr && at < p.columns) {
          StoreE8m0(static_cast<uint8_t*>(o.scales_t) + at, o.scales_t_ld, code, (o.columns_t + 31) / 32);
        }
      } else {
        const RunScale s = ScaleOfAmax<kRule, T>(m[0]);
        shared.column_inverse[at] = s.inverse;
        if constexpr (kSecond) shared.column_second[at] = s.second;
        if (o.codes_t != nullptr && at < p.columns) static_cast<float*>(o.scales_t)[at] = s.scale;
      }
    }
    __syncthreads();
  }

  if (o.codes != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int r = row_group * 8 + i;
      float v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = x[i].Get(j);
      const float inverse = kBlocks ? block.inverse : shared.row_inverse[kMx ? r * 4 + column_group / 4 : r];
      const float second = kBlocks ? block.second : kSecond ? shared.row_second[r] : 0;
      const uint2 codes = EncodeEight<kRule, T>(v, inverse, second);
      if (in_columns && r < p.rows) {
        *reinterpret_cast<uint2*>(o.codes + r * o.codes_ld + column_group * 8) = codes;
      }
    }
  }
  if (o.codes_t == nullptr) return;
    // Eight bytes of column c, rows 8 g .., lie at slot g ^ (c / 8) of its 16: a half-warp writes to all
    // banks.
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int c = column_group * 8 + j;
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = x[i].Get(j);
    const float inverse =
        kBlocks ? block.inverse : shared.column_inverse[kMx ? row_group / 4 * kTileSide + c : c];
    const float second = kBlocks ? block.second : kSecond ? shared.column_second[c] : 0;
    const uint2 codes = EncodeEight<kRule, T>(v, inverse, second);
    *reinterpret_cast<uint2*>(shared.codes_t + c * kTileSide + (row_group ^ column_group) * 8) = codes;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kTileSide * kTileSide / 16 / kTileThreads; ++k) {
    const int chunk = tid + k * kTileThreads, c = chunk / 8, part = chunk % 8, key = c / 8;
    uint4 codes =
        *reinterpret_cast<const uint4*>(shared.codes_t + c * kTileSide + ((2 * part ^ key) & ~1) * 8);
    if (key & 1) codes = {codes.z, codes.w, codes.x, codes.y};
    if (c < p.columns && part * 16 < o.columns_t) {
      *reinterpret_cast<uint4*>(o.codes_t + c * o.codes_t_ld + part * 16) = codes;
    }
  }
}

// Ragged rows: block (column tile, block of the aligned row space). False: beyond the last group.
__device__ __forceinline__ bool RaggedExtent(const int64_t* offsets, int64_t L, int64_t R, int64_t C,
                                             TileExtent& p) {
  const RaggedPlace place = FindRaggedBlock(offsets, L, R, blockIdx.y);
  const int64_t c0 = int64_t{blockIdx.x} * kTileSide;
  p = {place.row0, c0, place.rows, C - c0 < kTileSide ? static_cast<int>(C - c0) : kTileSide};
  return place.rows > 0;
}

template <class To>
__device__ __forceinline__ TileOutputs RaggedOutputs(const TileExtent& p, int64_t C, bool mx, const To& to) {
  const int64_t padded = int64_t{blockIdx.y} * kRaggedBlock;
  TileOutputs o;
  o.columns_t = kTileSide;
  o.codes = to.codes != nullptr ? to.codes + p.row0 * C + p.column0 : nullptr;
  o.codes_ld = C;
  o.codes_t = to.codes_t != nullptr ? to.codes_t + p.column0 * to.P + padded : nullptr;
  o.codes_t_ld = to.P;
  if (mx) {
    o.scales_ld = to.scales_ld, o.scales_t_ld = to.scales_t_ld;
    o.scales = static_cast<uint8_t*>(to.scales) + p.column0 / 32 * o.scales_ld + p.row0;
    o.scales_t = static_cast<uint8_t*>(to.scales_t) + padded / 32 * o.scales_t_ld + p.column0;
  } else {
    o.scales_ld = o.scales_t_ld = 0;
    o.scales = static_cast<float*>(to.scales) + int64_t{blockIdx.x} * to.scales_ld + p.row0;
    o.scales_t = static_cast<float*>(to.scales_t) + int64_t{blockIdx.y} * to.scales_t_ld + p.column0;
  }
  return o;
}

}  // namespace yardmaster
