// File: kernels/grouped_gemm_fp8/wgmma_e4m3.cuh
//
// wgmma of Hopper for E4M3: D[64 x 128] (+)= A[64 x 32] B[32 x 128] by a warpgroup, operands in
// shared memory, FP32 accumulators in registers. Both operands are K-major, the only order there is
// for 8-bit types: tiles of 128-byte rows with the 128-byte swizzle (kernels/common/wgmma_sm90.cuh,
// whose descriptors serve here too). Accumulators of lane l of warp w: d[4 j + {0, 1}] is row 16 w
// + l / 4, columns 8 j + 2 (l % 4) + {0, 1}; d[4 j + {2, 3}] is row + 8. (PTX ISA, asynchronous
// warpgroup-level matrix instructions.)
#pragma once

#include "kernels/common/wgmma_sm90.cuh"

namespace yardmaster::sm90fp8 {

// What to add to a descriptor to move 32 along k.
inline constexpr uint64_t kDescriptorStepK32 = 32 >> 4;

// `kAccumulate` false overwrites d.
template <bool kAccumulate>
__device__ __forceinline__ void WgmmaE4m3(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
      "{" YM_REGISTERS_64 "}, "
      "%64, %65, %66, 1, 1;"
      : YM_FLOATS_64(d, 0)
      : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0));
}

}  // namespace yardmaster::sm90fp8
