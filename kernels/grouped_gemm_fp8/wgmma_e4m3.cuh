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
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, %66, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
        "+f"(d[63])
      : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0));
}

// Accumulators are not read before what stands above.
__device__ __forceinline__ void HoldAccumulators(float (&d)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace yardmaster::sm90fp8
