// File: kernels/pad_rows/pad_rows.h
//
// Ragged expert-major rows to a fixed number of rows for each expert, and back; src/ops/pad_rows.h has the
// contract. Copies: memory-bound, each row read and written once, 16 bytes at a time where addresses and
// widths allow. Reference: src/ops/cpu/pad_rows_cpu.cc; test: tests/ops/pad_rows_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

struct PaddedRows {
  void* ragged;            // [R] rows of row_bytes
  const int64_t* offsets;  // [experts + 1]
  void* padded;            // [experts * rows] rows of row_bytes
  int64_t experts, rows, row_bytes;
};
// ragged -> padded, zeros behind each expert's rows. Rows of an expert beyond `rows` are left out.
cudaError_t PadExpertRows(const PaddedRows& args, cudaStream_t stream);
// padded -> ragged; other ragged rows stay.
cudaError_t UnpadExpertRows(const PaddedRows& args, cudaStream_t stream);
// offsets[l] = l * rows for l in [0, n).
cudaError_t FillPaddedOffsets(int64_t rows, int64_t* offsets, int64_t n, cudaStream_t stream);

}  // namespace yardmaster
