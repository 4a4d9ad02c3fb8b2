// File: kernels/quantize/wire.h
//
// Rows of 8-bit codes and their scales in one row of bytes; src/ops/wire_rows.h says how they lie, and
// src/ops/cpu/wire_rows_cpu.cc is the reference, byte for byte. Scales are powers of two: kPowerOfTwo or kMx.
//
// Packing: 16 lanes take 128 columns of a row (kMx: 4 lanes a run), 16 bytes of BF16 each, and write 8 codes;
// 3 1/32 bytes an element. Unpacking is QuantizeRaggedRows with the wire as its source: 1 byte read and 1 written for
// each copy. Both memory-bound, no atomics.
#pragma once

#include "kernels/quantize/quantize.h"

namespace yardmaster {

struct WireRows {
  uint8_t* bytes;       // 16-byte aligned
  int64_t ld, scales;   // of a row: its bytes, a multiple of 16, and where its scales begin
};

// x [T, D] BF16, D a multiple of 16.
cudaError_t PackWireRows(QuantRule rule, const void* x, int64_t T, int64_t D, const WireRows& to,
                         cudaStream_t stream);
// `rows.x` is not read; rows.C is D.
cudaError_t UnpackWireRows(QuantRule rule, const WireRows& from, const RaggedRows& rows, const QuantCopies& to,
                           cudaStream_t stream);

}  // namespace yardmaster
