// File: kernels/rope/gqa_rope.h
//
// Rotary positions in place, in half-split order; src/ops/gqa_rope.h has the formula. One block per token
// over the heads of q, then of k, several of them on their way at once; 16-byte accesses, each element read
// and written once: memory-bound. FP32 for BF16 and FP32, FP64 for FP64. A position outside the table gives
// NaN, which the step's verdict finds. Reference: src/ops/cpu/gqa_rope_cpu.cc; test:
// tests/ops/gqa_rope_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

struct GqaRopeRows {
  int64_t tokens;
  int q_heads, k_heads, head;  // H, G, Q
  void* q;                     // [T, H, Q]
  void* k;                     // [T, G, Q]
  const int32_t* positions;    // [T]
  const void* table;           // [max_positions, Q/2, 2], accumulator type
  int64_t max_positions;
  bool backward;  // the angle negated
};
cudaError_t RotateGqa(KernelType type, const GqaRopeRows& args, cudaStream_t stream);

}  // namespace yardmaster
