// File: kernels/rope/mla_rope_pack.h
//
// MLA's projections packed for attention, positional parts rotated, and the adjoint; src/ops/mla_rope_pack.h
// has the formulas.
//
// One block per token; every element is read and written once, 16 bytes at a time. A warp takes every eighth
// head, the next ones on their way to shared memory meanwhile; the shared key is rotated once. Heads too wide
// for a warp, or of odd widths: the block's threads over (head, pack of the row).
// Memory-bound: (2Q + N + 2V) H + P elements a token. Rotations in FP32 for BF16 and FP32, in FP64 for FP64.
// Backward sums dk_rope over the heads of each warp, then over the warps in order: deterministic. A position
// outside the table gives NaN, which the step's verdict finds. Reference: src/ops/cpu/mla_rope_pack_cpu.cc;
// test: tests/ops/mla_rope_pack_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

struct MlaRopeShape {
  int64_t tokens;
  int heads, nope, rope, v;  // H, N, P, V
  int64_t ld_rope;           // of k_rope or dk_rope
  const int32_t* positions;  // [tokens]
  const void* table;         // [max_positions, P/2, 2], accumulator type
  int64_t max_positions;
};

// q, q_out [T, H, N + P] (may be the same), kv [T, H, N + V], k_rope [T, P], k_out [T, H, N + P], v_out [T,
// H, V].
cudaError_t MlaRopePack(KernelType type, const MlaRopeShape& shape, const void* q, const void* kv,
                        const void* k_rope, void* q_out, void* k_out, void* v_out, cudaStream_t stream);

cudaError_t MlaRopeUnpack(KernelType type, const MlaRopeShape& shape, const void* dq_out, const void* dk_out,
                          const void* dv_out, void* dq, void* dkv, void* dk_rope, cudaStream_t stream);

}  // namespace yardmaster
