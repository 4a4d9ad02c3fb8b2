// File: kernels/grouped_gemm_portable/grouped_gemm_portable.h
//
// One GEMM per expert over ragged rows, in one launch, with the row counts in device memory only: the version that runs on
// every GPU from compute capability 8.0 on (kernels/grouped_gemm is Hopper's). Expert l owns rows
// [offsets[l], offsets[l + 1]).
//
//   forward  y_RN    = x_RK  w_LNK[l]^T
//   dgrad    dx_RK   = dy_RN w_LNK[l]
//   wgrad    dw_LNK  = dy_RN^T x_RK + beta * dw_LNK
//
// Row-major and dense. BF16: mma.sync with FP32 accumulation; FP32 and FP64: fused multiply-adds in their own precision (no
// TF32). offsets: int64[L + 1], ascending from 0; values beyond `rows` are read as `rows`. Rows at and beyond offsets[L] are
// neither read nor written: in wgrad, where the rows are the contraction, they are masked, not multiplied by zero. An expert
// without rows costs nothing in forward and dgrad; its weight gradient is beta * dw, zeros for beta 0 whatever dw held.
//
// Any n and k; BF16 with both a multiple of 8 and 16-byte aligned pointers takes 16-byte loads.
// Bound: compute. Deterministic: one thread block per output tile, the contraction in ascending order.
// Reference: src/ops/cpu/grouped_gemm_cpu.cc; test: tests/cuda/grouped_gemm_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

struct PortableGroups {
  int64_t rows = 0;                 // R: allocated rows
  int64_t experts = 0;              // L
  int64_t n = 0, k = 0;             // N, K
  const int64_t* offsets = nullptr;  // device, [L + 1]
};

cudaError_t PortableGroupedForward(KernelType type, const PortableGroups& g, const void* x_RK, const void* w_LNK, void* y_RN,
                                   cudaStream_t stream);
cudaError_t PortableGroupedDgrad(KernelType type, const PortableGroups& g, const void* dy_RN, const void* w_LNK, void* dx_RK,
                                 cudaStream_t stream);
// `out`: the type of dw, `type` itself or FP32 with BF16 operands.
cudaError_t PortableGroupedWgrad(KernelType type, KernelType out, const PortableGroups& g, const void* dy_RN, const void* x_RK,
                                 double beta, void* dw_LNK, cudaStream_t stream);

}  // namespace yardmaster
