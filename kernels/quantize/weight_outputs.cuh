// File: kernels/quantize/weight_outputs.cuh
//
// A 128x128 block of expert weights [L, N, K] and where its copies go: block (column tile, row tile, expert).
#pragma once

#include "kernels/quantize/quantize.h"
#include "kernels/quantize/tile.cuh"

namespace yardmaster {

__device__ __forceinline__ TileExtent WeightExtent(int64_t N, int64_t K) {
  const int64_t n0 = int64_t{blockIdx.y} * kTileSide, k0 = int64_t{blockIdx.x} * kTileSide;
  return {int64_t{blockIdx.z} * N + n0, k0, N - n0 < kTileSide ? static_cast<int>(N - n0) : kTileSide,
          K - k0 < kTileSide ? static_cast<int>(K - k0) : kTileSide};
}

template <ScaleRule kRule>
__device__ __forceinline__ TileOutputs WeightOutputs(const TileExtent& p, int64_t N, int64_t K,
                                                     const QuantCopies& to) {
  const int64_t l = blockIdx.z, n0 = int64_t{blockIdx.y} * kTileSide, k0 = p.column0;
  TileOutputs o;
  o.columns_t = p.rows;
  o.codes = to.codes != nullptr ? to.codes + p.row0 * K + k0 : nullptr;
  o.codes_ld = K;
  o.codes_t = to.codes_t != nullptr ? to.codes_t + (l * K + k0) * N + n0 : nullptr;
  o.codes_t_ld = N;
  if constexpr (kRule == ScaleRule::kMx) {
    o.scales_ld = N, o.scales_t_ld = K;
    o.scales = static_cast<uint8_t*>(to.scales) + (l * ((K + 31) / 32) + k0 / 32) * N + n0;
    o.scales_t = static_cast<uint8_t*>(to.scales_t) + (l * ((N + 31) / 32) + n0 / 32) * K + k0;
  } else {
    const int64_t row_blocks = gridDim.y, column_blocks = gridDim.x;
    o.scales_ld = o.scales_t_ld = 0;
    o.scales = static_cast<float*>(to.scales) + (l * row_blocks + blockIdx.y) * column_blocks + blockIdx.x;
    o.scales_t = static_cast<float*>(to.scales_t) + (l * column_blocks + blockIdx.x) * row_blocks + blockIdx.y;
  }
  return o;
}

inline dim3 WeightGrid(int64_t L, int64_t N, int64_t K) {
  return dim3(static_cast<unsigned>((K + kTileSide - 1) / kTileSide),
              static_cast<unsigned>((N + kTileSide - 1) / kTileSide), static_cast<unsigned>(L));
}

}  // namespace yardmaster
