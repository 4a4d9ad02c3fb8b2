#include "kernels/common/float_types.cuh"
#include "kernels/quantize/ragged_kernel.cuh"

namespace yardmaster {
namespace {

// Block (column tile, row tile, expert).
template <ScaleRule kRule, class T>
__global__ void __launch_bounds__(kTileThreads, PlainSource<T>::kBlocksOfSm)
    QuantizeWeightsKernel(const T* w, int64_t N, int64_t K, QuantCopies to) {
  constexpr bool kMx = kRule == ScaleRule::kMx;
  __shared__ TileShared<T> shared;
  const int64_t l = blockIdx.z, n0 = int64_t{blockIdx.y} * kTileSide, k0 = int64_t{blockIdx.x} * kTileSide;
  const TileExtent p = {l * N + n0, k0, N - n0 < kTileSide ? static_cast<int>(N - n0) : kTileSide,
                        K - k0 < kTileSide ? static_cast<int>(K - k0) : kTileSide};
  QuantizeTile<kRule, !kMx>(PlainSource<T>{w, K}, p, shared, [&] {
    TileOutputs o;
    o.columns_t = p.rows;
    o.codes = to.codes != nullptr ? to.codes + p.row0 * K + k0 : nullptr;
    o.codes_ld = K;
    o.codes_t = to.codes_t != nullptr ? to.codes_t + (l * K + k0) * N + n0 : nullptr;
    o.codes_t_ld = N;
    if constexpr (kMx) {
      o.scales_ld = (K + 31) / 32, o.scales_t_ld = (N + 31) / 32;
      o.scales = static_cast<uint8_t*>(to.scales) + p.row0 * o.scales_ld + k0 / 32;
      o.scales_t = static_cast<uint8_t*>(to.scales_t) + (l * K + k0) * o.scales_t_ld + n0 / 32;
    } else {
      const int64_t row_blocks = gridDim.y, column_blocks = gridDim.x;
      o.scales_ld = o.scales_t_ld = 0;
      o.scales = static_cast<float*>(to.scales) + (l * row_blocks + blockIdx.y) * column_blocks + blockIdx.x;
      o.scales_t =
          static_cast<float*>(to.scales_t) + (l * column_blocks + blockIdx.x) * row_blocks + blockIdx.y;
    }
    return o;
  });
}

}  // namespace

cudaError_t QuantizeExpertWeights(KernelType type, QuantRule rule, const void* w, int64_t L, int64_t N,
                                  int64_t K, const QuantCopies& to, cudaStream_t stream) {
  if (L == 0 || N == 0 || K == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>((K + kTileSide - 1) / kTileSide),
                  static_cast<unsigned>((N + kTileSide - 1) / kTileSide), static_cast<unsigned>(L));
  return DispatchSource(type, [&]<class T>() {
    return DispatchRule(rule, [&]<ScaleRule kRule>() {
      QuantizeWeightsKernel<kRule, T><<<grid, kTileThreads, 0, stream>>>(static_cast<const T*>(w), N, K, to);
      return cudaGetLastError();
    });
  });
}

}  // namespace yardmaster
