// File: kernels/random/normal.h
//
// Standard normal numbers, a function of (seed, stream, index) alone: Philox4x32-10 and Box-Muller in FP64,
// the bits of the cpu device (src/base/philox.h, whose operations are repeated one by one). Bound by FP64
// arithmetic: about 130 operations a number, 7.4 G numbers in about 0.1 s on an H200 (worked out, not
// measured). Reference: src/ops/cpu/random_normal_cpu.cc; test: tests/ops/random_normal_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

// A box [extent0, extent1, extent2] of a global tensor: element (i, j, k) has the index
// ((begin0 + i) * global1 + begin1 + j) * global2 + begin2 + k.
struct NormalBox {
  int64_t extent[3], begin[3];
  int64_t global1, global2;
};

// y = scale * normal(index), rounded to `type` (F32 or F64); copy: y in BF16, or null.
cudaError_t FillNormal(KernelType type, const NormalBox& box, uint64_t seed, uint64_t number_stream,
                       double scale, void* y, void* copy, cudaStream_t stream);

}  // namespace yardmaster
