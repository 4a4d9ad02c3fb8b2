// File: kernels/permute/permute.h
//
// Token rows to expert-major rows and back; src/ops/permute.h has the contract. Deterministic, no
// order-dependent atomics. Reference: src/ops/cpu/permute_cpu.cc; test: tests/ops/permute_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

struct PermutePlanRows {
  const int32_t* idx;  // [pairs]: expert of each pair
  int64_t pairs;
  int64_t expert_begin, experts;  // the local ones: at most 6144
  int64_t rows;                   // capacity R
  int64_t* offsets;               // [experts + 1]
  int64_t* slot;                  // [pairs]
  int64_t* source;                // [rows]
  int32_t* overflow;              // [1], set to 1 or left as it is
  int64_t chunk;                  // pairs of a chunk, a multiple of 32
  int64_t* prefix;                // [experts, chunks], scratch
  int64_t* starts;                // [experts + 1], scratch
};
// Four launches over chunks of pairs (kernels/common/counting_sort.cuh): O(pairs + experts * chunks) work.
cudaError_t PlanPermute(const PermutePlanRows& args, cudaStream_t stream);

// x_RD[r] = x_TD[source[r] / top_k], w_R[r] = w_TK[source[r]] (null: no weights) for r < num_rows[0]. One
// block per row, by the grid's stride, 16 bytes at a time: memory-bound, each row written once. Row and
// weight sizes in bytes.
cudaError_t PermuteRows(const void* x_TD, int64_t row_bytes, const int64_t* source, const int64_t* num_rows,
                        int64_t R, int64_t top_k, void* x_RD, const void* w_TK, int weight_bytes, void* w_R,
                        cudaStream_t stream);

// y_TD[t] = residual[t] + addend[t] + sum over k ascending of y_RD[slot[t, k]]: a gather, summed in the
// accumulator type and rounded once. residual and addend may be null or y_TD. dw_TK[t, k] = dw_R[slot[t, k]]
// or 0, with dw_R (accumulator type).
cudaError_t UnpermuteRows(KernelType type, const void* y_RD, const int64_t* slot, int64_t T, int64_t K,
                          int64_t D, const void* residual, const void* addend, void* y_TD, const void* dw_R,
                          void* dw_TK, cudaStream_t stream);

}  // namespace yardmaster
