#include <algorithm>

#include "kernels/common/float_types.cuh"
#include "kernels/grouped_gemm_portable/fma_tile.cuh"
#include "kernels/grouped_gemm_portable/group_map.cuh"
#include "kernels/grouped_gemm_portable/grouped_gemm_portable.h"
#include "kernels/grouped_gemm_portable/mma_tile.cuh"

namespace yardmaster {
namespace {

// Forward and dgrad: rows of x (width `inner`) times one expert's weight give rows of y (width `outer`).
// kForward: weight [outer, inner], so the contraction is contiguous; else [inner, outer].
struct RowsProblem {
  PortableGroups g;
  int64_t outer, inner;
};

template <int kTile>
__device__ __forceinline__ bool TileOfBlock(const RowsProblem& p, RowTile* tile) {
  *tile = FindRowTile<kTile>(p.g.offsets, p.g.experts, p.g.rows, blockIdx.x);
  return tile->expert >= 0;
}

template <bool kForward, bool kVector>
__global__ void __launch_bounds__(MmaTile::kThreads)
    RowsMmaKernel(const __grid_constant__ RowsProblem p, const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y) {
  extern __shared__ __align__(16) unsigned char shared[];
  RowTile tile;
  if (!TileOfBlock<MmaTile::kM>(p, &tile)) return;
  const int64_t n0 = int64_t{blockIdx.y} * MmaTile::kN;
  const MmaOperand a{x, p.inner, tile.begin, tile.end};
  const MmaOperand b{w + tile.expert * p.g.n * p.g.k, kForward ? p.inner : p.outer, n0, p.outer};
  float acc[4][4][4] = {};
  MultiplyTile<false, !kForward, kVector>(a, b, 0, p.inner, reinterpret_cast<__nv_bfloat16*>(shared), acc);
  ForTileElements(acc, [&](int row, int col, float value) {
    if (tile.begin + row < tile.end && n0 + col < p.outer) {
      y[(tile.begin + row) * p.outer + n0 + col] = __float2bfloat16_rn(value);
    }
  });
}

template <bool kForward, class T>
__global__ void __launch_bounds__(FmaTile::kThreads)
    RowsFmaKernel(const __grid_constant__ RowsProblem p, const T* x, const T* w, T* y) {
  __shared__ FmaShared<T> shared;
  RowTile tile;
  if (!TileOfBlock<FmaTile::kM>(p, &tile)) return;
  const int64_t n0 = int64_t{blockIdx.y} * FmaTile::kN;
  const FmaOperand<T> a{x, p.inner, tile.begin, tile.end};
  const FmaOperand<T> b{w + tile.expert * p.g.n * p.g.k, kForward ? p.inner : p.outer, n0, p.outer};
  T acc[4][4] = {};
  MultiplyFmaTile<false, !kForward>(a, b, 0, p.inner, shared, acc);
  ForFmaElements(acc, [&](int row, int col, T value) {
    if (tile.begin + row < tile.end && n0 + col < p.outer) y[(tile.begin + row) * p.outer + n0 + col] = value;
  });
}

// dw[l] [N, K]: block (x, y, z) writes the tile at rows y, columns x of expert z.
template <bool kVector, class Out>
__global__ void __launch_bounds__(MmaTile::kThreads)
    WgradMmaKernel(const __grid_constant__ PortableGroups g, const __nv_bfloat16* dy, const __nv_bfloat16* x, float beta, Out* dw) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int64_t expert = blockIdx.z, n0 = int64_t{blockIdx.y} * MmaTile::kM, k0 = int64_t{blockIdx.x} * MmaTile::kN;
  const int64_t begin = ClampedOffset(g.offsets, expert, g.rows), end = ClampedOffset(g.offsets, expert + 1, g.rows);
  const MmaOperand a{dy, g.n, n0, g.n}, b{x, g.k, k0, g.k};
  float acc[4][4][4] = {};
  MultiplyTile<true, true, kVector>(a, b, begin, end, reinterpret_cast<__nv_bfloat16*>(shared), acc);
  Out* out = dw + expert * g.n * g.k;
  ForTileElements(acc, [&](int row, int col, float value) {
    if (n0 + row >= g.n || k0 + col >= g.k) return;
    Out* target = out + (n0 + row) * g.k + k0 + col;
    *target = FromAccum<Out>(beta == 0 ? value : fmaf(beta, ToAccum(*target), value));
  });
}

template <class T>
__global__ void __launch_bounds__(FmaTile::kThreads)
    WgradFmaKernel(const __grid_constant__ PortableGroups g, const T* dy, const T* x, T beta, T* dw) {
  __shared__ FmaShared<T> shared;
  const int64_t expert = blockIdx.z, n0 = int64_t{blockIdx.y} * FmaTile::kM, k0 = int64_t{blockIdx.x} * FmaTile::kN;
  const int64_t begin = ClampedOffset(g.offsets, expert, g.rows), end = ClampedOffset(g.offsets, expert + 1, g.rows);
  const FmaOperand<T> a{dy, g.n, n0, g.n}, b{x, g.k, k0, g.k};
  T acc[4][4] = {};
  MultiplyFmaTile<true, true>(a, b, begin, end, shared, acc);
  T* out = dw + expert * g.n * g.k;
  ForFmaElements(acc, [&](int row, int col, T value) {
    if (n0 + row >= g.n || k0 + col >= g.k) return;
    T* target = out + (n0 + row) * g.k + k0 + col;
    *target = beta == 0 ? value : fma(beta, *target, value);
  });
}

unsigned Tiles(int64_t length, int64_t tile) { return static_cast<unsigned>((length + tile - 1) / tile); }
unsigned RowTiles(const PortableGroups& g, int64_t tile) { return Tiles(g.rows, tile) + static_cast<unsigned>(g.experts); }

bool Aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class Kernel, class... Args>
cudaError_t LaunchMma(Kernel kernel, dim3 grid, cudaStream_t stream, Args... args) {
  const cudaError_t set = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, MmaTile::kSharedBytes);
  if (set != cudaSuccess) return set;
  kernel<<<grid, MmaTile::kThreads, MmaTile::kSharedBytes, stream>>>(args...);
  return cudaGetLastError();
}

template <bool kForward>
cudaError_t Rows(KernelType type, const PortableGroups& g, const void* x, const void* w, void* y, cudaStream_t stream) {
  const RowsProblem p{g, kForward ? g.n : g.k, kForward ? g.k : g.n};
  if (g.rows == 0 || g.experts == 0 || p.outer == 0) return cudaSuccess;
  if (type == KernelType::kBf16) {
    const auto* bx = static_cast<const __nv_bfloat16*>(x);
    const auto* bw = static_cast<const __nv_bfloat16*>(w);
    auto* by = static_cast<__nv_bfloat16*>(y);
    const dim3 grid(RowTiles(g, MmaTile::kM), Tiles(p.outer, MmaTile::kN));
    const bool vector = g.n % 8 == 0 && g.k % 8 == 0 && Aligned16(x) && Aligned16(w);
    return vector ? LaunchMma(RowsMmaKernel<kForward, true>, grid, stream, p, bx, bw, by)
                  : LaunchMma(RowsMmaKernel<kForward, false>, grid, stream, p, bx, bw, by);
  }
  const dim3 grid(RowTiles(g, FmaTile::kM), Tiles(p.outer, FmaTile::kN));
  if (type == KernelType::kF32) {
    RowsFmaKernel<kForward, float><<<grid, FmaTile::kThreads, 0, stream>>>(p, static_cast<const float*>(x),
                                                                          static_cast<const float*>(w), static_cast<float*>(y));
  } else {
    RowsFmaKernel<kForward, double><<<grid, FmaTile::kThreads, 0, stream>>>(
        p, static_cast<const double*>(x), static_cast<const double*>(w), static_cast<double*>(y));
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t PortableGroupedForward(KernelType type, const PortableGroups& g, const void* x_RK, const void* w_LNK, void* y_RN,
                                   cudaStream_t stream) {
  return Rows<true>(type, g, x_RK, w_LNK, y_RN, stream);
}

cudaError_t PortableGroupedDgrad(KernelType type, const PortableGroups& g, const void* dy_RN, const void* w_LNK, void* dx_RK,
                                 cudaStream_t stream) {
  return Rows<false>(type, g, dy_RN, w_LNK, dx_RK, stream);
}

cudaError_t PortableGroupedWgrad(KernelType type, KernelType out, const PortableGroups& g, const void* dy_RN, const void* x_RK,
                                 double beta, void* dw_LNK, cudaStream_t stream) {
  if (out != type && !(type == KernelType::kBf16 && out == KernelType::kF32)) return cudaErrorInvalidValue;
  if (g.experts == 0 || g.n == 0 || g.k == 0) return cudaSuccess;
  const unsigned experts = static_cast<unsigned>(g.experts);
  if (type == KernelType::kBf16) {
    const auto* dy = static_cast<const __nv_bfloat16*>(dy_RN);
    const auto* x = static_cast<const __nv_bfloat16*>(x_RK);
    const dim3 grid(Tiles(g.k, MmaTile::kN), Tiles(g.n, MmaTile::kM), experts);
    const bool vector = g.n % 8 == 0 && g.k % 8 == 0 && Aligned16(dy_RN) && Aligned16(x_RK);
    const float b = static_cast<float>(beta);
    if (out == KernelType::kF32) {
      auto* dw = static_cast<float*>(dw_LNK);
      return vector ? LaunchMma(WgradMmaKernel<true, float>, grid, stream, g, dy, x, b, dw)
                    : LaunchMma(WgradMmaKernel<false, float>, grid, stream, g, dy, x, b, dw);
    }
    auto* dw = static_cast<__nv_bfloat16*>(dw_LNK);
    return vector ? LaunchMma(WgradMmaKernel<true, __nv_bfloat16>, grid, stream, g, dy, x, b, dw)
                  : LaunchMma(WgradMmaKernel<false, __nv_bfloat16>, grid, stream, g, dy, x, b, dw);
  }
  const dim3 grid(Tiles(g.k, FmaTile::kN), Tiles(g.n, FmaTile::kM), experts);
  if (type == KernelType::kF32) {
    WgradFmaKernel<float><<<grid, FmaTile::kThreads, 0, stream>>>(g, static_cast<const float*>(dy_RN),
                                                                 static_cast<const float*>(x_RK), static_cast<float>(beta),
                                                                 static_cast<float*>(dw_LNK));
  } else {
    WgradFmaKernel<double><<<grid, FmaTile::kThreads, 0, stream>>>(
        g, static_cast<const double*>(dy_RN), static_cast<const double*>(x_RK), beta, static_cast<double*>(dw_LNK));
  }
  return cudaGetLastError();
}

}  // namespace yardmaster
