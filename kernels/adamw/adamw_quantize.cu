#include "kernels/adamw/adamw_quantize.h"

#include "kernels/adamw/adamw_update.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/quantize/ragged_kernel.cuh"
#include "kernels/quantize/weight_outputs.cuh"

namespace yardmaster {
namespace {

// The source of a quantised tile (kernels/quantize/sources.cuh) that updates the weight on its way.
template <class M>
struct AdamWSource {
  using Element = __nv_bfloat16;
  static constexpr int kBlocksOfSm = 2;
  float* master;
  const float* grad;
  M* m;
  M* v;
  int64_t K;
  AdamWFactors<float> f;
  float decay;

  __device__ __forceinline__ void Load(int64_t row, int rows, int64_t column,
                                       Eight<__nv_bfloat16> (&out)[8]) const {
    const int64_t at = row * K + column;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) out[i].w[k] = 0;
    }
    // Two rows at a time: as many loads under way as registers allow.
#pragma unroll
    for (int pair = 0; pair < 8; pair += 2) {
      Pack<float, 8> p[2], g[2];
      Pack<M, 8> first[2], second[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (pair + h >= rows) continue;
        const int64_t i = at + (pair + h) * K;
        p[h] = LoadPack<8>(master + i);
        g[h] = LoadPack<8>(grad + i);
        first[h] = LoadPack<8>(m + i);
        second[h] = LoadPack<8>(v + i);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (pair + h >= rows) continue;
        const int64_t i = at + (pair + h) * K;
#pragma unroll
        for (int j = 0; j < 8; ++j)
          AdamWUpdate(f, decay, p[h].x[j], g[h].x[j], first[h].x[j], second[h].x[j]);
        StorePack<8>(master + i, p[h]);
        StorePack<8>(m + i, first[h]);
        StorePack<8>(v + i, second[h]);
#pragma unroll
        for (int k = 0; k < 4; ++k) out[pair + h].Set(k, p[h].x[2 * k], p[h].x[2 * k + 1]);
      }
    }
  }
};

template <ScaleRule kRule, class M>
__global__ void __launch_bounds__(kTileThreads, AdamWSource<M>::kBlocksOfSm)
    AdamWQuantizeKernel(AdamWWeight w, AdamWBetas betas, const KernelStepState* state, QuantCopies to) {
  if (state->verdict != 0) return;
  __shared__ TileShared<__nv_bfloat16> shared;
  __shared__ AdamWFactors<float> factors;
  if (threadIdx.x == 0) factors = AdamWFactorsOf<float>(betas, *state);
  __syncthreads();
  const AdamWSource<M> source = {w.master,
                                 w.grad,
                                 static_cast<M*>(w.m),
                                 static_cast<M*>(w.v),
                                 w.K,
                                 factors,
                                 static_cast<float>(state->learning_rate * w.weight_decay)};
  const TileExtent p = WeightExtent(w.N, w.K);
  QuantizeTile<kRule, kRule != ScaleRule::kMx>(source, p, shared,
                                               [&] { return WeightOutputs<kRule>(p, w.N, w.K, to); });
}

}  // namespace

cudaError_t AdamWQuantize(KernelType moments, QuantRule rule, const AdamWWeight& w, double beta1, double beta2,
                          double eps, const KernelStepState* state, const QuantCopies& to, cudaStream_t stream) {
  if (w.L == 0 || w.N == 0 || w.K == 0) return cudaSuccess;
  return DispatchSource(moments, [&]<class M>() {
    return DispatchRule(rule, [&]<ScaleRule kRule>() {
      AdamWQuantizeKernel<kRule, M><<<WeightGrid(w.L, w.N, w.K), kTileThreads, 0, stream>>>(
          w, AdamWBetas{beta1, beta2, eps}, state, to);
      return cudaGetLastError();
    });
  });
}

}  // namespace yardmaster
