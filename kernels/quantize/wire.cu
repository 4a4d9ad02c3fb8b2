#include "kernels/quantize/wire.h"

#include "kernels/quantize/ragged_kernel.cuh"

namespace yardmaster {
namespace {

constexpr int kPackThreads = 256;

// A lane of 8 columns; blocks of 2048 columns of a row.
template <ScaleRule kRule>
__global__ void __launch_bounds__(kPackThreads)
    PackKernel(const __nv_bfloat16* x, int64_t D, WireRows to) {
  constexpr int kLanes = kRule == ScaleRule::kMx ? 4 : 16;  // of a run
  const int64_t row = blockIdx.x, column = (int64_t{blockIdx.y} * kPackThreads + threadIdx.x) * 8;
  const bool there = column < D;
  Eight<__nv_bfloat16> e;
  e.Load(x + row * D + column, there);
  uint32_t words = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) words = e.Max(words, e.Abs(e.w[k]));
  uint32_t amax = max(e.OfColumn(&words, 0), e.OfColumn(&words, 1));
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) amax = max(amax, __shfl_xor_sync(~0u, amax, step));
  if (!there) return;
  const RunScale scale = ScaleOfAmax<kRule, __nv_bfloat16>(amax);
  float v[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] = e.Get(j);
  uint8_t* out = to.bytes + row * to.ld;
  *reinterpret_cast<uint2*>(out + column) = EncodeEight<kRule, __nv_bfloat16>(v, scale.inverse, scale.second);
  if (threadIdx.x % kLanes != 0) return;
  if constexpr (kRule == ScaleRule::kMx) {
    out[to.scales + column / 32] = scale.e8m0;
  } else {
    reinterpret_cast<float*>(out + to.scales)[column / 128] = scale.scale;
  }
}

// The values of received rows: a code times a power of two, exact in BF16.
template <bool kMx>
struct WireSource {
  using Element = __nv_bfloat16;
  static constexpr int kBlocksOfSm = 3;
  WireRows wire;
  __device__ __forceinline__ void Load(int64_t row, int rows, int64_t column,
                                       Eight<__nv_bfloat16> (&out)[8]) const {
    const uint8_t* p = wire.bytes + row * wire.ld;
    uint2 codes[8];
    float scale[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      codes[i] = {0, 0};
      scale[i] = 0;
      if (i >= rows) continue;
      codes[i] = __ldg(reinterpret_cast<const uint2*>(p + i * wire.ld + column));
      const uint8_t* scales = p + i * wire.ld + wire.scales;
      if constexpr (kMx) {
        scale[i] = E8m0ToFloat(__ldg(scales + column / 32));
      } else {
        scale[i] = __ldg(reinterpret_cast<const float*>(scales) + column / 128);
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t word = k < 2 ? codes[i].x : codes[i].y;
        const uint16_t two = static_cast<uint16_t>(word >> (k % 2 * 16));
        const float2 v = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3)));
        out[i].Set(k, v.x * scale[i], v.y * scale[i]);
      }
    }
  }
};

template <ScaleRule kRule>
cudaError_t LaunchUnpack(const WireRows& from, const RaggedRows& rows, const QuantCopies& to, cudaStream_t stream) {
  const WireSource<kRule == ScaleRule::kMx> source{from};
  const dim3 grid(static_cast<unsigned>((rows.C + kTileSide - 1) / kTileSide),
                  static_cast<unsigned>(RaggedBlocks(rows.R, rows.L)));
  QuantizeRaggedKernel<kRule>
      <<<grid, kTileThreads, 0, stream>>>(source, rows.offsets, rows.L, rows.R, rows.C, to);
  return cudaGetLastError();
}

}  // namespace

cudaError_t PackWireRows(QuantRule rule, const void* x, int64_t T, int64_t D, const WireRows& to,
                         cudaStream_t stream) {
  if (T == 0 || D == 0) return cudaSuccess;
  if (rule == QuantRule::kExact) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(T), static_cast<unsigned>((D + kPackThreads * 8 - 1) / (kPackThreads * 8)));
  const auto* from = static_cast<const __nv_bfloat16*>(x);
  if (rule == QuantRule::kMx) {
    PackKernel<ScaleRule::kMx><<<grid, kPackThreads, 0, stream>>>(from, D, to);
  } else {
    PackKernel<ScaleRule::kPowerOfTwo><<<grid, kPackThreads, 0, stream>>>(from, D, to);
  }
  return cudaGetLastError();
}

cudaError_t UnpackWireRows(QuantRule rule, const WireRows& from, const RaggedRows& rows, const QuantCopies& to,
                           cudaStream_t stream) {
  if (rows.R == 0 || rows.C == 0) return cudaSuccess;
  if (rule == QuantRule::kExact) return cudaErrorInvalidValue;
  return rule == QuantRule::kMx ? LaunchUnpack<ScaleRule::kMx>(from, rows, to, stream)
                                : LaunchUnpack<ScaleRule::kPowerOfTwo>(from, rows, to, stream);
}

}  // namespace yardmaster
