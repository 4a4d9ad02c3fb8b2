// File: kernels/grouped_gemm_portable/mma_tile.cuh
//
// A 128 x 128 tile of A B by one thread block of 8 warps (2 along m, 4 along n, each 64 x 32), BF16 in, FP32 accumulators.
// mma.sync.m16n8k16; operands through a ring of cp.async stages. Rows of shared memory are padded by 16 bytes, which keeps
// ldmatrix free of bank conflicts for both layouts.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

struct MmaTile {
  static constexpr int kM = 128, kN = 128, kK = 32, kThreads = 256, kStages = 4;
  static constexpr int kPad = 8;  // elements
  // One operand of one stage: [128][kK + pad] if the contraction is its contiguous axis, else [kK][128 + pad].
  static constexpr int kOperandElements = 128 * (kK + kPad) > kK * (128 + kPad) ? 128 * (kK + kPad) : kK * (128 + kPad);
  static constexpr int kSharedBytes = kStages * 2 * kOperandElements * 2;
};

// An operand in global memory: `outer` entries [outer_begin, outer_end) (rows of C for A, columns for B) by the contraction
// [k_begin, k_end). kOuterContiguous: element (o, c) at data[c * ld + o], else at data[o * ld + c].
struct MmaOperand {
  const __nv_bfloat16* data;
  int64_t ld;
  int64_t outer_begin, outer_end;
};

__device__ __forceinline__ uint32_t SharedAddress(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// 16 bytes, or zeros where !valid (then `global` is not read).
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)), "l"(global), "r"(valid ? 16 : 0));
}
__device__ __forceinline__ void CommitCopies() { asm volatile("cp.async.commit_group;"); }
template <int kPending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

template <bool kTranspose>
__device__ __forceinline__ void LoadMatrix4(uint32_t (&r)[4], const void* shared) {
  if constexpr (kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(SharedAddress(shared)));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(SharedAddress(shared)));
  }
}

__device__ __forceinline__ void Mma16816(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Brings contraction entries [k0, k0 + kK) of one operand to shared memory; what is out of range becomes 0.
template <bool kOuterContiguous, bool kVector>
__device__ __forceinline__ void LoadOperand(__nv_bfloat16* shared, const MmaOperand& g, int64_t k0, int64_t k_end) {
  constexpr int kRows = kOuterContiguous ? MmaTile::kK : 128;
  constexpr int kCols = kOuterContiguous ? 128 : MmaTile::kK;
  constexpr int kStride = kCols + MmaTile::kPad;
  const int64_t row0 = kOuterContiguous ? k0 : g.outer_begin, row_end = kOuterContiguous ? k_end : g.outer_end;
  const int64_t col0 = kOuterContiguous ? g.outer_begin : k0, col_end = kOuterContiguous ? g.outer_end : k_end;
  constexpr int kWidth = kVector ? 8 : 1;
  constexpr int kPieces = kRows * kCols / kWidth;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < kPieces; i += MmaTile::kThreads) {
    const int r = i / (kCols / kWidth), c = i % (kCols / kWidth) * kWidth;
    const int64_t row = row0 + r, col = col0 + c;
    const bool valid = row < row_end && col < col_end;
    const __nv_bfloat16* source = g.data + (valid ? row * g.ld + col : 0);
    __nv_bfloat16* target = shared + r * kStride + c;
    if constexpr (kVector) {
      CopyAsync16(target, source, valid);
    } else {
      *target = valid ? *source : __nv_bfloat16(0.0f);
    }
  }
}

// acc[i][j] is the 16 x 8 fragment at (warp_m * 64 + 16 i, warp_n * 32 + 8 j). `shared`: MmaTile::kSharedBytes, dynamic.
template <bool kAOuter, bool kBOuter, bool kVector>
__device__ void MultiplyTile(const MmaOperand& a, const MmaOperand& b, int64_t k_begin, int64_t k_end, __nv_bfloat16* shared,
                             float (&acc)[4][4][4]) {
  constexpr int kK = MmaTile::kK, kStages = MmaTile::kStages;
  constexpr int kAStride = (kAOuter ? 128 : kK) + MmaTile::kPad, kBStride = (kBOuter ? 128 : kK) + MmaTile::kPad;
  const auto a_stage = [&](int s) { return shared + s * 2 * MmaTile::kOperandElements; };
  const auto b_stage = [&](int s) { return a_stage(s) + MmaTile::kOperandElements; };
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_m = warp / 4 * 64, warp_n = warp % 4 * 32;
  const int quad = lane / 8, r = lane % 8;
  const int64_t steps = k_end > k_begin ? (k_end - k_begin + kK - 1) / kK : 0;

  const auto load = [&](int64_t step) {
    if (step < steps) {
      const int s = static_cast<int>(step % kStages);
      LoadOperand<kAOuter, kVector>(a_stage(s), a, k_begin + step * kK, k_end);
      LoadOperand<kBOuter, kVector>(b_stage(s), b, k_begin + step * kK, k_end);
    }
    CommitCopies();  // an empty group at the end keeps the count
  };
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) load(s);

  for (int64_t step = 0; step < steps; ++step) {
    WaitCopies<kStages - 2>();
    __syncthreads();  // the stage has arrived for everyone, and the one to be overwritten is no longer read
    load(step + kStages - 1);
    const __nv_bfloat16* as = a_stage(static_cast<int>(step % kStages));
    const __nv_bfloat16* bs = b_stage(static_cast<int>(step % kStages));
#pragma unroll
    for (int k = 0; k < kK; k += 16) {
      uint32_t af[4][4], bf[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int m = warp_m + i * 16;
        // The four 8 x 8 blocks of a fragment: (m, k), (m + 8, k), (m, k + 8), (m + 8, k + 8).
        const __nv_bfloat16* p = kAOuter ? as + (k + quad / 2 * 8 + r) * kAStride + m + quad % 2 * 8
                                         : as + (m + quad % 2 * 8 + r) * kAStride + k + quad / 2 * 8;
        LoadMatrix4<kAOuter>(af[i], p);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int n = warp_n + j * 16;
        // (k, n), (k + 8, n), (k, n + 8), (k + 8, n + 8): two fragments.
        const __nv_bfloat16* p = kBOuter ? bs + (k + quad % 2 * 8 + r) * kBStride + n + quad / 2 * 8
                                         : bs + (n + quad / 2 * 8 + r) * kBStride + k + quad % 2 * 8;
        LoadMatrix4<kBOuter>(bf[j], p);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) Mma16816(acc[i][j], af[i], bf[j / 2][j % 2 * 2], bf[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  WaitCopies<0>();
}

// f(row, col, value) for every element of the tile that this thread holds; row and col within the tile.
template <class F>
__device__ __forceinline__ void ForTileElements(const float (&acc)[4][4][4], F&& f) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row0 = warp / 4 * 64 + lane / 4, col0 = warp % 4 * 32 + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        f(row0 + i * 16 + half * 8, col0 + j * 8, acc[i][j][half * 2]);
        f(row0 + i * 16 + half * 8, col0 + j * 8 + 1, acc[i][j][half * 2 + 1]);
      }
    }
  }
}

}  // namespace yardmaster
