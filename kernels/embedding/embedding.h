// File: kernels/embedding/embedding.h
//
// Rows of a table by id, and the table's gradient by sorted ids. Deterministic: each table row adds its
// tokens in ascending order, in the accumulator type. Reference: src/ops/cpu/embedding_cpu.cc; test:
// tests/ops/embedding_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

// x[t] = table[ids[t]]; one block per token, which has its row on its way before it stores any of it. Ids
// must be in the table.
cudaError_t EmbeddingRows(KernelType type, const int32_t* ids, int64_t T, int64_t D, const void* table,
                          void* x, cudaStream_t stream);

// The tokens are sorted by the digits of their ids.
struct EmbeddingSortScratch {
  int64_t chunk;     // tokens of a chunk, a multiple of 32
  int passes, bits;  // of digits of `bits` bits; passes * bits reach every id
  int32_t* order;    // [2, T]
  int64_t* prefix;   // [2^bits, chunks]
  int64_t* starts;   // [2^bits + 1]
};

// dtable[v] = beta * dtable[v] + sum over t ascending with ids[t] == v of dx[t]; dtable [V, D] in the
// accumulator type of `type`. Sorts the tokens by id; then a warp for each 32 places and slice of columns
// adds the rows of the runs of equal ids that begin there. With beta 1 only rows that occur are touched; else
// a pass over the table goes first, and with beta 0 it is only written.
// squares: null or, with beta 0 and EmbeddingSquares(type, D) > 0, F64 [V, that]: sums of the squares of what is
// written, in FP64.
cudaError_t EmbeddingGradient(KernelType type, const int32_t* ids, int64_t T, int64_t V, int64_t D,
                              const void* dx, double beta, void* dtable, double* squares,
                              const EmbeddingSortScratch& scratch, cudaStream_t stream);

// Sums of squares of a row of the gradient; 0: none, rows are not made of whole packs of 16 bytes.
int64_t EmbeddingSquares(KernelType type, int64_t D);

}  // namespace yardmaster
