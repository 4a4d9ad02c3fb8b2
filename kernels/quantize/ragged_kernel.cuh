// File: kernels/quantize/ragged_kernel.cuh
//
// The launch of QuantizeTile over ragged rows, for every source, and its dispatch.
#pragma once

#include "kernels/quantize/quantize.h"
#include "kernels/quantize/tile.cuh"

namespace yardmaster {

template <ScaleRule kRule, class Source>
__global__ void __launch_bounds__(kTileThreads, Source::kBlocksOfSm)
    QuantizeRaggedKernel(Source source, const int64_t* offsets, int64_t L, int64_t R, int64_t C,
                         QuantCopies to) {
  __shared__ TileShared<typename Source::Element> shared;
  TileExtent extent;
  if (!RaggedExtent(offsets, L, R, C, extent)) return;
  QuantizeTile<kRule, false>(source, extent, shared,
                             [&] { return RaggedOutputs(extent, C, kRule == ScaleRule::kMx, to); });
}

// f.template operator()<ScaleRule>().
template <class F>
cudaError_t DispatchRule(QuantRule rule, F&& f) {
  switch (rule) {
    case QuantRule::kExact:
      return f.template operator()<ScaleRule::kExact>();
    case QuantRule::kPowerOfTwo:
      return f.template operator()<ScaleRule::kPowerOfTwo>();
    case QuantRule::kMx:
      return f.template operator()<ScaleRule::kMx>();
  }
  return cudaErrorInvalidValue;
}

// f.template operator()<T>() with T the type that is quantised.
template <class F>
cudaError_t DispatchSource(KernelType type, F&& f) {
  if (type == KernelType::kBf16) return f.template operator()<__nv_bfloat16>();
  if (type == KernelType::kF32) return f.template operator()<float>();
  return cudaErrorInvalidValue;
}

template <class Source>
cudaError_t LaunchRagged(QuantRule rule, const Source& source, const RaggedRows& rows, const QuantCopies& to,
                         cudaStream_t stream) {
  const int64_t blocks = RaggedBlocks(rows.R, rows.L);
  if (rows.R == 0 || rows.C == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>((rows.C + kTileSide - 1) / kTileSide), static_cast<unsigned>(blocks));
  return DispatchRule(rule, [&]<ScaleRule kRule>() {
    QuantizeRaggedKernel<kRule>
        <<<grid, kTileThreads, 0, stream>>>(source, rows.offsets, rows.L, rows.R, rows.C, to);
    return cudaGetLastError();
  });
}

}  // namespace yardmaster
