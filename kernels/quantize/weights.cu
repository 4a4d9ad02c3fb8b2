#include "kernels/common/float_types.cuh"
#include "kernels/quantize/ragged_kernel.cuh"
#include "kernels/quantize/weight_outputs.cuh"

namespace yardmaster {
namespace {

template <ScaleRule kRule, class Source>
__global__ void __launch_bounds__(kTileThreads, Source::kBlocksOfSm)
    QuantizeWeightsKernel(Source source, int64_t N, int64_t K, QuantCopies to) {
  __shared__ TileShared<typename Source::Element> shared;
  const TileExtent p = WeightExtent(N, K);
  QuantizeTile<kRule, kRule != ScaleRule::kMx>(source, p, shared,
                                               [&] { return WeightOutputs<kRule>(p, N, K, to); });
}

}  // namespace

cudaError_t QuantizeExpertWeights(KernelType type, bool through_bf16, QuantRule rule, const void* w, int64_t L,
                                  int64_t N, int64_t K, const QuantCopies& to, cudaStream_t stream) {
  if (L == 0 || N == 0 || K == 0) return cudaSuccess;
  const auto launch = [&](const auto& source) {
    return DispatchRule(rule, [&]<ScaleRule kRule>() {
      QuantizeWeightsKernel<kRule><<<WeightGrid(L, N, K), kTileThreads, 0, stream>>>(source, N, K, to);
      return cudaGetLastError();
    });
  };
  if (through_bf16 && type == KernelType::kF32) return launch(RoundedSource{static_cast<const float*>(w), K});
  return DispatchSource(type,
                        [&]<class T>() { return launch(PlainSource<T>{static_cast<const T*>(w), K}); });
}

}  // namespace yardmaster
