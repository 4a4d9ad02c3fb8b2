// File: kernels/grouped_gemm_portable/fma_tile.cuh
//
// A 64 x 64 tile of A B by one thread block of 256 threads, each 4 x 4, in FP32 or FP64 by fused multiply-adds: the parity
// path. The operands have mma_tile.cuh's layouts.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

struct FmaTile {
  static constexpr int kM = 64, kN = 64, kK = 16, kThreads = 256;
};

template <class T>
struct FmaOperand {
  const T* data;
  int64_t ld;
  int64_t outer_begin, outer_end;
};

template <class T>
struct FmaShared {
  T a[FmaTile::kK][FmaTile::kM + 1];
  T b[FmaTile::kK][FmaTile::kN + 1];
};

template <bool kOuterContiguous, class T>
__device__ __forceinline__ void LoadFmaOperand(T (&shared)[FmaTile::kK][FmaTile::kM + 1], const FmaOperand<T>& g, int64_t k0,
                                               int64_t k_end) {
  for (int i = static_cast<int>(threadIdx.x); i < FmaTile::kK * FmaTile::kM; i += FmaTile::kThreads) {
    const int c = kOuterContiguous ? i / FmaTile::kM : i % FmaTile::kK, o = kOuterContiguous ? i % FmaTile::kM : i / FmaTile::kK;
    const int64_t outer = g.outer_begin + o, k = k0 + c;
    const bool valid = outer < g.outer_end && k < k_end;
    shared[c][o] = valid ? g.data[kOuterContiguous ? k * g.ld + outer : outer * g.ld + k] : T{0};
  }
}

template <bool kAOuter, bool kBOuter, class T>
__device__ void MultiplyFmaTile(const FmaOperand<T>& a, const FmaOperand<T>& b, int64_t k_begin, int64_t k_end,
                                FmaShared<T>& shared, T (&acc)[4][4]) {
  const int row = static_cast<int>(threadIdx.x) / 16 * 4, col = static_cast<int>(threadIdx.x) % 16 * 4;
  for (int64_t k0 = k_begin; k0 < k_end; k0 += FmaTile::kK) {
    LoadFmaOperand<kAOuter>(shared.a, a, k0, k_end);
    LoadFmaOperand<kBOuter>(shared.b, b, k0, k_end);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < FmaTile::kK; ++k) {
      T x[4], y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = shared.a[k][row + i], y[i] = shared.b[k][col + i];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] = fma(x[i], y[j], acc[i][j]);
      }
    }
    __syncthreads();
  }
}

template <class T, class F>
__device__ __forceinline__ void ForFmaElements(const T (&acc)[4][4], F&& f) {
  const int row = static_cast<int>(threadIdx.x) / 16 * 4, col = static_cast<int>(threadIdx.x) % 16 * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) f(row + i, col + j, acc[i][j]);
  }
}

}  // namespace yardmaster
