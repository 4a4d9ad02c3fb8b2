// File: kernels/common/wgmma_sm90.cuh
//
// wgmma of Hopper: D[64 x 256] (+)= A[64 x 16] B[16 x 256] by a warpgroup, BF16 operands in shared memory, FP32
// accumulators in registers. Operands lie in tiles of 128-byte rows with the 128-byte swizzle (16-byte chunk index XOR row
// % 8), 1024-byte aligned, as TMA writes them:
//   K-major   a row holds 64 consecutive k of one m (or n)
//   MN-major  a row holds 64 consecutive m (or n) of one k; the next 64 lie in the next box of `box_bytes`
// Accumulators of lane l of warp w: d[4 j + {0, 1}] is row 16 w + l / 4, columns 8 j + 2 (l % 4) + {0, 1};
// d[4 j + {2, 3}] is row + 8. (PTX ISA, asynchronous warpgroup-level matrix instructions.)
#pragma once

#include "kernels/common/ptx_sm90.cuh"

namespace yardmaster::sm90 {

// A matrix descriptor. `box_bytes` is used by MN-major operands wider than 64 only.
template <bool kKMajor>
__device__ __forceinline__ uint64_t MatrixDescriptor(Shared tile, uint32_t box_bytes) {
  constexpr uint64_t kSwizzle128 = 1;
  constexpr uint64_t kRowGroup = 8 * 128;  // eight rows, in bytes
  const uint64_t leading = kKMajor ? 1 : box_bytes >> 4;
  return (kSwizzle128 << 62) | ((kRowGroup >> 4) << 32) | (leading << 16) | ((tile & 0x3FFFF) >> 4);
}

// What to add to a descriptor to move 16 along k.
template <bool kKMajor>
inline constexpr uint64_t kDescriptorStepK16 = (kKMajor ? 16 * 2 : 16 * 128) >> 4;

__device__ __forceinline__ void WgmmaFence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void WgmmaCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Waits until at most kPending groups are not complete. The operands keep the compiler from reading these accumulators
// earlier: half 0 is columns 0 to 127, half 1 the rest.
template <int kPending>
__device__ __forceinline__ void WgmmaWaitHalf(float (&d)[64]) {
  asm volatile(
      "wgmma.wait_group.sync.aligned %64;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
        "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]),
        "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]),
        "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
        "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "n"(kPending)
      : "memory");
}

template <bool kAKMajor, bool kBKMajor>
__device__ __forceinline__ void Wgmma64x256x16(float (&low)[64], float (&high)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, 1, 1, 1, %130, %131;\n"
      "}"
      : "+f"(low[0]), "+f"(low[1]), "+f"(low[2]), "+f"(low[3]), "+f"(low[4]), "+f"(low[5]),
        "+f"(low[6]), "+f"(low[7]),
        "+f"(low[8]), "+f"(low[9]), "+f"(low[10]), "+f"(low[11]), "+f"(low[12]), "+f"(low[13]),
        "+f"(low[14]), "+f"(low[15]),
        "+f"(low[16]), "+f"(low[17]), "+f"(low[18]), "+f"(low[19]), "+f"(low[20]), "+f"(low[21]),
        "+f"(low[22]), "+f"(low[23]),
        "+f"(low[24]), "+f"(low[25]), "+f"(low[26]), "+f"(low[27]), "+f"(low[28]), "+f"(low[29]),
        "+f"(low[30]), "+f"(low[31]),
        "+f"(low[32]), "+f"(low[33]), "+f"(low[34]), "+f"(low[35]), "+f"(low[36]), "+f"(low[37]),
        "+f"(low[38]), "+f"(low[39]),
        "+f"(low[40]), "+f"(low[41]), "+f"(low[42]), "+f"(low[43]), "+f"(low[44]), "+f"(low[45]),
        "+f"(low[46]), "+f"(low[47]),
        "+f"(low[48]), "+f"(low[49]), "+f"(low[50]), "+f"(low[51]), "+f"(low[52]), "+f"(low[53]),
        "+f"(low[54]), "+f"(low[55]),
        "+f"(low[56]), "+f"(low[57]), "+f"(low[58]), "+f"(low[59]), "+f"(low[60]), "+f"(low[61]),
        "+f"(low[62]), "+f"(low[63]),
        "+f"(high[0]), "+f"(high[1]), "+f"(high[2]), "+f"(high[3]), "+f"(high[4]), "+f"(high[5]),
        "+f"(high[6]), "+f"(high[7]),
        "+f"(high[8]), "+f"(high[9]), "+f"(high[10]), "+f"(high[11]), "+f"(high[12]), "+f"(high[13]),
        "+f"(high[14]), "+f"(high[15]),
        "+f"(high[16]), "+f"(high[17]), "+f"(high[18]), "+f"(high[19]), "+f"(high[20]), "+f"(high[21]),
        "+f"(high[22]), "+f"(high[23]),
        "+f"(high[24]), "+f"(high[25]), "+f"(high[26]), "+f"(high[27]), "+f"(high[28]), "+f"(high[29]),
        "+f"(high[30]), "+f"(high[31]),
        "+f"(high[32]), "+f"(high[33]), "+f"(high[34]), "+f"(high[35]), "+f"(high[36]), "+f"(high[37]),
        "+f"(high[38]), "+f"(high[39]),
        "+f"(high[40]), "+f"(high[41]), "+f"(high[42]), "+f"(high[43]), "+f"(high[44]), "+f"(high[45]),
        "+f"(high[46]), "+f"(high[47]),
        "+f"(high[48]), "+f"(high[49]), "+f"(high[50]), "+f"(high[51]), "+f"(high[52]), "+f"(high[53]),
        "+f"(high[54]), "+f"(high[55]),
        "+f"(high[56]), "+f"(high[57]), "+f"(high[58]), "+f"(high[59]), "+f"(high[60]), "+f"(high[61]),
        "+f"(high[62]), "+f"(high[63])
      : "l"(a), "l"(b), "n"(kAKMajor ? 0 : 1), "n"(kBKMajor ? 0 : 1));
}

// 128 columns. `kAccumulate` false overwrites d.
template <bool kAKMajor, bool kBKMajor, bool kAccumulate>
__device__ __forceinline__ void Wgmma64x128x16(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, %68, 1, 1, %66, %67;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
        "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]),
        "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]),
        "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
        "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "n"(kAKMajor ? 0 : 1), "n"(kBKMajor ? 0 : 1), "n"(kAccumulate ? 1 : 0));
}

}  // namespace yardmaster::sm90
