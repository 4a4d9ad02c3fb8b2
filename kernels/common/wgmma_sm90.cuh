// File: kernels/common/wgmma_sm90.cuh
//
// wgmma of Hopper: D[64 x kN] (+)= A[64 x 16] B[16 x kN] by a warpgroup, BF16 operands in shared
// memory, FP32 accumulators in registers. Operands lie in tiles of 128-byte rows with the 128-byte
// swizzle (16-byte chunk index XOR row % 8), 1024-byte aligned, as TMA writes them:
//   K-major   a row holds 64 consecutive k of one m (or n)
//   MN-major  a row holds 64 consecutive m (or n) of one k; the next 64 lie `box_bytes` further
// Accumulators of lane l of warp w: d[4 j + {0, 1}] is row 16 w + l / 4, columns 8 j + 2 (l % 4) +
// {0, 1}; d[4 j + {2, 3}] is row + 8. (PTX ISA, asynchronous warpgroup-level matrix instructions.)
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

__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Accumulators are not read before what stands above.
template <int kCount, int kSize>
__device__ __forceinline__ void HoldAccumulators(float (&d)[kSize]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Operands of one instruction by the eight and 64: accumulators from d[i] on; the first 64 by number.
#define YM_FLOATS_8(d, i)                                                                      \
  "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]),        \
      "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define YM_FLOATS_64(d, i)                                                                     \
  YM_FLOATS_8(d, i), YM_FLOATS_8(d, (i) + 8), YM_FLOATS_8(d, (i) + 16), YM_FLOATS_8(d, (i) + 24), \
      YM_FLOATS_8(d, (i) + 32), YM_FLOATS_8(d, (i) + 40), YM_FLOATS_8(d, (i) + 48),            \
      YM_FLOATS_8(d, (i) + 56)
#define YM_REGISTERS_64                                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                     \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "           \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "           \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// One instruction for each width. `kAccumulate` false overwrites d. Uses d[0] to d[kN / 2 - 1].
template <int kN, bool kAKMajor, bool kBKMajor, bool kAccumulate>
__device__ __forceinline__ void Wgmma(float (&d)[128], uint64_t a, uint64_t b) {
  static_assert(kN % 16 == 0 && kN >= 128 && kN <= 256);
  if constexpr (kN == 128) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{" YM_REGISTERS_64 "}, "
        "%64, %65, %66, 1, 1, %67, %68;"
        : YM_FLOATS_64(d, 0)
        : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0), "n"(kAKMajor ? 0 : 1), "n"(kBKMajor ? 0 : 1));
  } else if constexpr (kN == 144) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n144k16.f32.bf16.bf16 "
        "{" YM_REGISTERS_64
        ", %64, %65, %66, %67, %68, %69, %70, %71}, "
        "%72, %73, %74, 1, 1, %75, %76;"
        : YM_FLOATS_64(d, 0), YM_FLOATS_8(d, 64)
        : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0), "n"(kAKMajor ? 0 : 1), "n"(kBKMajor ? 0 : 1));
  } else if constexpr (kN == 160) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n160k16.f32.bf16.bf16 "
        "{" YM_REGISTERS_64
        ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79}, "
        "%80, %81, %82, 1, 1, %83, %84;"
        : YM_FLOATS_64(d, 0), YM_FLOATS_8(d, 64), YM_FLOATS_8(d, 72)
        : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0), "n"(kAKMajor ? 0 : 1), "n"(kBKMajor ? 0 : 1));
  } else if constexpr (kN == 176) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n176k16.f32.bf16.bf16 "
        "{" YM_REGISTERS_64
        ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87}, "
        "%88, %89, %90, 1, 1, %91, %92;"
        : YM_FLOATS_64(d, 0), YM_FLOATS_8(d, 64), YM_FLOATS_8(d, 72), YM_FLOATS_8(d, 80)
        : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0), "n"(kAKMajor ? 0 : 1), "n"(kBKMajor ? 0 : 1));
  } else if constexpr (kN == 192) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
        "{" YM_REGISTERS_64
        ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
        "%96, %97, %98, 1, 1, %99, %100;"
        : YM_FLOATS_64(d, 0), YM_FLOATS_8(d, 64), YM_FLOATS_8(d, 72), YM_FLOATS_8(d, 80),
          YM_FLOATS_8(d, 88)
        : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0), "n"(kAKMajor ? 0 : 1), "n"(kBKMajor ? 0 : 1));
  } else if constexpr (kN == 208) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n208k16.f32.bf16.bf16 "
        "{" YM_REGISTERS_64
        ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103}, "
        "%104, %105, %106, 1, 1, %107, %108;"
        : YM_FLOATS_64(d, 0), YM_FLOATS_8(d, 64), YM_FLOATS_8(d, 72), YM_FLOATS_8(d, 80),
          YM_FLOATS_8(d, 88), YM_FLOATS_8(d, 96)
        : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0), "n"(kAKMajor ? 0 : 1), "n"(kBKMajor ? 0 : 1));
  } else if constexpr (kN == 224) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n224k16.f32.bf16.bf16 "
        "{" YM_REGISTERS_64
        ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "
        "%110, %111}, "
        "%112, %113, %114, 1, 1, %115, %116;"
        : YM_FLOATS_64(d, 0), YM_FLOATS_8(d, 64), YM_FLOATS_8(d, 72), YM_FLOATS_8(d, 80),
          YM_FLOATS_8(d, 88), YM_FLOATS_8(d, 96), YM_FLOATS_8(d, 104)
        : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0), "n"(kAKMajor ? 0 : 1), "n"(kBKMajor ? 0 : 1));
  } else if constexpr (kN == 240) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n240k16.f32.bf16.bf16 "
        "{" YM_REGISTERS_64
        ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "
        "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119}, "
        "%120, %121, %122, 1, 1, %123, %124;"
        : YM_FLOATS_64(d, 0), YM_FLOATS_8(d, 64), YM_FLOATS_8(d, 72), YM_FLOATS_8(d, 80),
          YM_FLOATS_8(d, 88), YM_FLOATS_8(d, 96), YM_FLOATS_8(d, 104), YM_FLOATS_8(d, 112)
        : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0), "n"(kAKMajor ? 0 : 1), "n"(kBKMajor ? 0 : 1));
  } else if constexpr (kN == 256) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{" YM_REGISTERS_64
        ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "
        "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, "
        "%124, %125, %126, %127}, "
        "%128, %129, %130, 1, 1, %131, %132;"
        : YM_FLOATS_64(d, 0), YM_FLOATS_64(d, 64)
        : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0), "n"(kAKMajor ? 0 : 1), "n"(kBKMajor ? 0 : 1));
  }
}

}  // namespace yardmaster::sm90
