#include <cuda_bf16.h>

#include "kernels/common/pack.cuh"
#include "kernels/common/ragged.cuh"
#include "kernels/quantize/codes.cuh"
#include "kernels/quantize/quantize.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256, kSide = 128, kPitch = kSide + 4;

// A tile's place among its operand's codes and scales; the last axis of both is the contraction.
struct Stored {
  const uint8_t* codes;  // at the tile's first element
  int64_t ld;
  const void* scales;  // at the tile's first scale
  int64_t scales_ld;   // kMx: between runs
};

// The scale of element (i, j) of the stored tile: FP32 per row, or one; E8M0 per row and run of 32.
template <bool kMx, bool kOne>
__device__ __forceinline__ float ScaleAt(const Stored& s, int i, int j) {
  if constexpr (kMx) return E8m0ToFloat(static_cast<const uint8_t*>(s.scales)[j / 32 * s.scales_ld + i]);
  return static_cast<const float*>(s.scales)[kOne ? 0 : i];
}

// What a block shares: a transposed tile's codes, and the scales of its columns, by run.
struct Shared {
  alignas(16) uint8_t codes[kSide * kPitch];
  float scales[kSide * 4];
};

// Eight neighbours of a row, rounded and stored together.
template <class T>
__device__ __forceinline__ void StoreEight(T* out, const float (&v)[8]) {
  if constexpr (sizeof(T) == 2) {
    StoreRounded<8>(out, v);
  } else {
    const float low[4] = {v[0], v[1], v[2], v[3]}, high[4] = {v[4], v[5], v[6], v[7]};
    StoreRounded<4>(out, low);
    StoreRounded<4>(out + 4, high);
  }
}

// out[r * out_ld + c] for r < rows, c < columns (a multiple of 8): element (r, c) of the stored tile, or (c,
// r) of a transposed one, which goes through shared memory so that both sides move in lines. A half-warp
// writes 256 bytes of a BF16 row.
template <class T, bool kMx, bool kOne, bool kTransposed>
__device__ __forceinline__ void DequantizeTile(const Stored& s, int rows, int columns, T* out, int64_t out_ld,
                                               Shared& shared) {
  const int tid = static_cast<int>(threadIdx.x);
  if constexpr (kTransposed) {
    for (int at = tid * 4; at < kSide * kSide; at += kThreads * 4) {
      const int c = at / kSide, r = at % kSide;
      uint32_t four = 0;
      if (c < columns && r < rows) four = *reinterpret_cast<const uint32_t*>(s.codes + c * s.ld + r);
      *reinterpret_cast<uint32_t*>(shared.codes + c * kPitch + r) = four;
    }
    for (int at = tid; at < kSide * (kMx ? 4 : 1); at += kThreads) {
      const int c = at % kSide, run = at / kSide;
      if (c < columns && run * 32 < rows) shared.scales[at] = ScaleAt<kMx, kOne>(s, c, run * 32);
    }
    __syncthreads();
  }
  const int c = tid % 16 * 8;
  if (c >= columns) return;
#pragma unroll 4
  for (int r = tid / 16; r < rows; r += kThreads / 16) {
    float v[8];
    if constexpr (kTransposed) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        v[j] = E4m3ToFloat(shared.codes[(c + j) * kPitch + r]) *
               shared.scales[(kMx ? r / 32 * kSide : 0) + c + j];
      }
    } else {
      const uint2 codes = *reinterpret_cast<const uint2*>(s.codes + r * s.ld + c);
      const float scale = ScaleAt<kMx, kOne>(s, r, c);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        v[j] = E4m3ToFloat(static_cast<uint8_t>((j < 4 ? codes.x : codes.y) >> 8 * (j % 4))) * scale;
    }
    StoreEight(out + r * out_ld + c, v);
  }
}

template <class T, bool kMx, bool kTransposed>
__global__ void __launch_bounds__(kThreads)
    DequantizeRaggedKernel(QuantCopies from, int64_t R, int64_t C, const int64_t* offsets, int64_t L,
                           T* out) {
  __shared__ Shared shared;
  const RaggedPlace place = FindRaggedBlock(offsets, L, R, blockIdx.y);
  if (place.rows == 0) return;
  const int64_t c0 = int64_t{blockIdx.x} * kSide, padded = int64_t{blockIdx.y} * kSide;
  Stored s;
  if constexpr (kTransposed) {
    s = {from.codes_t + c0 * from.P + padded, from.P, nullptr, from.scales_t_ld};
    if constexpr (kMx) {
      s.scales = static_cast<const uint8_t*>(from.scales_t) + padded / 32 * s.scales_ld + c0;
    } else {
      s.scales = static_cast<const float*>(from.scales_t) + int64_t{blockIdx.y} * from.scales_t_ld + c0;
    }
  } else {
    s = {from.codes + place.row0 * C + c0, C, nullptr, from.scales_ld};
    if constexpr (kMx) {
      s.scales = static_cast<const uint8_t*>(from.scales) + c0 / 32 * s.scales_ld + place.row0;
    } else {
      s.scales = static_cast<const float*>(from.scales) + int64_t{blockIdx.x} * from.scales_ld + place.row0;
    }
  }
  const int columns = C - c0 < kSide ? static_cast<int>(C - c0) : kSide;
  DequantizeTile<T, kMx, false, kTransposed>(s, place.rows, columns, out + place.row0 * C + c0, C, shared);
}

template <class T, bool kMx, bool kTransposed>
__global__ void __launch_bounds__(kThreads)
    DequantizeWeightsKernel(QuantCopies from, int64_t N, int64_t K, T* out) {
  __shared__ Shared shared;
  const int64_t l = blockIdx.z, n0 = int64_t{blockIdx.y} * kSide, k0 = int64_t{blockIdx.x} * kSide;
  const int64_t row_blocks = gridDim.y, column_blocks = gridDim.x;
  Stored s;
  if constexpr (kTransposed) {
    s = {from.codes_t + (l * K + k0) * N + n0, N, nullptr, K};
    if constexpr (kMx) {
      s.scales = static_cast<const uint8_t*>(from.scales_t) + (l * ((N + 31) / 32) + n0 / 32) * K + k0;
    } else {
      s.scales = static_cast<const float*>(from.scales_t) + (l * column_blocks + blockIdx.x) * row_blocks +
                 blockIdx.y;
    }
  } else {
    s = {from.codes + (l * N + n0) * K + k0, K, nullptr, N};
    if constexpr (kMx) {
      s.scales = static_cast<const uint8_t*>(from.scales) + (l * ((K + 31) / 32) + k0 / 32) * N + n0;
    } else {
      s.scales =
          static_cast<const float*>(from.scales) + (l * row_blocks + blockIdx.y) * column_blocks + blockIdx.x;
    }
  }
  const int rows = N - n0 < kSide ? static_cast<int>(N - n0) : kSide,
            columns = K - k0 < kSide ? static_cast<int>(K - k0) : kSide;
  DequantizeTile<T, kMx, !kMx, kTransposed>(s, rows, columns, out + (l * N + n0) * K + k0, K, shared);
}

// f.template operator()<T, kMx, kTransposed>().
template <class F>
cudaError_t Dispatch(KernelType type, QuantRule rule, bool transposed, F&& f) {
  const auto by_type = [&]<class T>() {
    if (rule == QuantRule::kMx) {
      return transposed ? f.template operator()<T, true, true>() : f.template operator()<T, true, false>();
    }
    return transposed ? f.template operator()<T, false, true>() : f.template operator()<T, false, false>();
  };
  if (type == KernelType::kBf16) return by_type.template operator()<__nv_bfloat16>();
  if (type == KernelType::kF32) return by_type.template operator()<float>();
  return cudaErrorInvalidValue;
}

unsigned Tiles(int64_t n) { return static_cast<unsigned>((n + kSide - 1) / kSide); }

}  // namespace

cudaError_t DequantizeRaggedRows(KernelType type, QuantRule rule, const QuantCopies& from, int64_t R,
                                 int64_t C, const int64_t* offsets, int64_t L, void* out,
                                 cudaStream_t stream) {
  if (R == 0 || C == 0) return cudaSuccess;
  const dim3 grid(Tiles(C), static_cast<unsigned>(RaggedBlocks(R, L)));
  return Dispatch(type, rule, from.codes == nullptr, [&]<class T, bool kMx, bool kTransposed>() {
    DequantizeRaggedKernel<T, kMx, kTransposed>
        <<<grid, kThreads, 0, stream>>>(from, R, C, offsets, L, static_cast<T*>(out));
    return cudaGetLastError();
  });
}

cudaError_t DequantizeExpertWeights(KernelType type, QuantRule rule, const QuantCopies& from, int64_t L,
                                    int64_t N, int64_t K, void* out, cudaStream_t stream) {
  if (L == 0 || N == 0 || K == 0) return cudaSuccess;
  const dim3 grid(Tiles(K), Tiles(N), static_cast<unsigned>(L));
  return Dispatch(type, rule, from.codes == nullptr, [&]<class T, bool kMx, bool kTransposed>() {
    DequantizeWeightsKernel<T, kMx, kTransposed>
        <<<grid, kThreads, 0, stream>>>(from, N, K, static_cast<T*>(out));
    return cudaGetLastError();
  });
}

}  // namespace yardmaster
