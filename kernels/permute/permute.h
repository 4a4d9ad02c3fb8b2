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

// out[r] = x[source[r] / top_k], w_out[r] = w[source[r]] for r < num_rows[0]. Memory-bound, 16 bytes at a
// time, each row written once. With `slot`, where source and slot are of one plan: a block for each token,
// which reads its row once; else a block for each row, by the grid's stride, and tokens are read top_k times.
struct PermuteRowsArgs {
  const void* x;  // [tokens], rows of row_bytes
  int64_t tokens, row_bytes;
  const int64_t* source;    // [rows]
  const int64_t* slot;      // [tokens, top_k], or null
  const int64_t* num_rows;  // [1]
  int64_t rows, top_k;
  void* out;         // [rows], rows of row_bytes
  const void* w;     // [tokens, top_k], or null: no weights
  int weight_bytes;  // a multiple of 4
  void* w_out;       // [rows]
};
cudaError_t PermuteRows(const PermuteRowsArgs& args, cudaStream_t stream);

// y_TD[t] = residual[t] + addend[t] + sum over k ascending of y_RD[slot[t, k]]: a gather, summed in the
// accumulator type and rounded once. residual and addend may be null or y_TD. dw_TK[t, k] = dw_R[slot[t, k]]
// or 0, with dw_R (accumulator type).
cudaError_t UnpermuteRows(KernelType type, const void* y_RD, const int64_t* slot, int64_t T, int64_t K,
                          int64_t D, const void* residual, const void* addend, void* y_TD, const void* dw_R,
                          void* dw_TK, cudaStream_t stream);

}  // namespace yardmaster
