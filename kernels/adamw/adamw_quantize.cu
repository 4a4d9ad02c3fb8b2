#include "kernels/adamw/adamw_quantize.h"

#include "kernels/adamw/adamw_update.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/quantize/ragged_kernel.cuh"
#include "kernels/quantize/weight_outputs.cuh"

namespace yardmaster {
namespace {

// The source of a quantised tile (kernels/quantize/sources.cuh) that updates the weight on its way. A row at a time in a
// loop that is not unrolled, with the loads of the next row under way: unrolled, 64 updates do not fit into the
// instruction cache (1.63 ms for 235 M elements, 1.34 so; AdamW alone takes 1.16). What comes out waits for the last
// row in shared memory, since registers cannot be indexed.
template <class M>
struct AdamWSource {
  using Element = __nv_bfloat16;
  static constexpr int kBlocksOfSm = 3;
  float* master;
  const float* grad;
  M* m;
  M* v;
  int64_t K;
  AdamWFactors<float> f;
  float decay;
  uint4* low;  // [4][kTileThreads]: of a thread's rows 0 to 3; of the others `high`
  uint4* high;

  struct Row {
    Pack<float, 8> p, g;
    Pack<M, 8> m, v;
  };
  __device__ __forceinline__ void LoadRow(int64_t i, Row& row) const {
    row.p = LoadPack<8>(master + i);
    row.g = LoadPack<8>(grad + i);
    row.m = LoadPack<8>(m + i);
    row.v = LoadPack<8>(v + i);
  }
  __device__ __forceinline__ uint4& Waiting(int r) const {
    return (r < 4 ? low + r * kTileThreads : high + (r - 4) * kTileThreads)[threadIdx.x];
  }

  __device__ __forceinline__ void Load(int64_t row, int rows, int64_t column,
                                       Eight<__nv_bfloat16> (&out)[8]) const {
    const int64_t at = row * K + column;
    Row now;
    if (rows > 0) LoadRow(at, now);
#pragma unroll 1
    for (int r = 0; r < 8; ++r) {
      if (r >= rows) {
        Waiting(r) = make_uint4(0, 0, 0, 0);
        continue;
      }
      const int64_t i = at + r * K;
      Row next = now;
      if (r + 1 < rows && r < 7) LoadRow(i + K, next);
#pragma unroll
      for (int j = 0; j < 8; ++j) AdamWUpdate(f, decay, now.p.x[j], now.g.x[j], now.m.x[j], now.v.x[j]);
      StorePack<8>(master + i, now.p);
      StorePack<8>(m + i, now.m);
      StorePack<8>(v + i, now.v);
      Eight<__nv_bfloat16> rounded;
#pragma unroll
      for (int k = 0; k < 4; ++k) rounded.Set(k, now.p.x[2 * k], now.p.x[2 * k + 1]);
      Waiting(r) = make_uint4(rounded.w[0], rounded.w[1], rounded.w[2], rounded.w[3]);
      now = next;
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const uint4 w = Waiting(r);
      out[r].w[0] = w.x, out[r].w[1] = w.y, out[r].w[2] = w.z, out[r].w[3] = w.w;
    }
  }
};

template <ScaleRule kRule, class M>
__global__ void __launch_bounds__(kTileThreads, AdamWSource<M>::kBlocksOfSm)
    AdamWQuantizeKernel(AdamWWeight w, AdamWBetas betas, const KernelStepState* state, QuantCopies to) {
  if (state->verdict != 0) return;
  __shared__ TileShared<__nv_bfloat16> shared;
  __shared__ AdamWFactors<float> factors;
  __shared__ uint4 waiting[4 * kTileThreads];
  static_assert(sizeof(shared.codes_t) == sizeof(waiting));  // lent until the tile transposes
  if (threadIdx.x == 0) factors = AdamWFactorsOf<float>(betas, *state);
  __syncthreads();
  const AdamWSource<M> source = {w.master,
                                 w.grad,
                                 static_cast<M*>(w.m),
                                 static_cast<M*>(w.v),
                                 w.K,
                                 factors,
                                 static_cast<float>(state->learning_rate * w.weight_decay),
                                 reinterpret_cast<uint4*>(shared.codes_t),
                                 waiting};
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
