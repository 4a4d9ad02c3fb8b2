// File: kernels/attention/softmax_rows.h
//
// The elementwise half of attention that is not fused: scores come from a GEMM, in the accumulator type, and go to the next
// GEMM in the work type. One batch entry per (key head, query head of it); rows [row0, row0 + rows) of the sequence against
// keys [0, keys), keys <= ld. A row attends to keys [start_i, i], start_i = 0 without document_start.
//
//   forward   p_ij = exp(s_ij - max) / sum, lse_i = max + log(sum); zeros outside the row's keys
//   backward  p_ij = exp(s_ij - lse_i);  ds_ij = p_ij (dp_ij - <do_i, o_i>); zeros outside
//
// One thread block per row. Memory-bound: scores read twice (forward) or once, p and ds written once. Statistics in the
// accumulator type (FP32; FP64 for FP64), fixed order. p may be the memory of s, and ds that of dp, when the types are equal.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

struct SoftmaxRows {
  int64_t batch = 0, rows = 0, row0 = 0, keys = 0;
  int64_t ld = 0;                           // elements between rows of s, p, dp, ds
  int64_t stride = 0;                       // elements between batch entries of them
  const int32_t* document_start = nullptr;  // [S] of this sample, or null
  int64_t lse_stride = 0;                   // elements between batch entries of lse, which is at row 0 of the sequence
};

cudaError_t SoftmaxForward(KernelType type, const SoftmaxRows& g, const void* s, void* p, void* lse, cudaStream_t stream);

// o and do: element (batch b, row i, c) at [i * row_stride + b * batch_stride + c], from row 0 of the sequence, width V.
struct SoftmaxBackwardRows {
  SoftmaxRows base;
  int64_t V = 0, row_stride = 0, batch_stride = 0;
};
cudaError_t SoftmaxBackward(KernelType type, const SoftmaxBackwardRows& g, const void* s, const void* dp, const void* lse,
                            const void* o, const void* d_o, void* p, void* ds, cudaStream_t stream);

}  // namespace yardmaster
