// File: src/ops/pad_rows.h
//
// Ragged expert-major rows to M rows for each expert, and back: padding to capacity. Expert l owns rows
// [offsets[l], offsets[l + 1]) of the ragged side and [l M, (l + 1) M) of the padded one:
//   PadRows     padded[l M + i] = ragged[offsets[l] + i], zero from the expert's last row on
//   UnpadRows   ragged[offsets[l] + i] = padded[l M + i]; ragged rows from offsets[L] on are never touched
// Each is the other's adjoint. A row of zeros and its weight of zero go through an expert and give zeros,
// forward and backward.
#pragma once

#include "src/device/device.h"

namespace yardmaster {

struct PadRowsArgs {
  Tensor ragged;   // [R, ...]
  Tensor offsets;  // int64 [L + 1]; no expert has more than M rows, which is checked on the cpu device
  Tensor padded;   // [L M, ...], the same type and row
};
void PadRows(const Stream& stream, const PadRowsArgs& args);
void UnpadRows(const Stream& stream, const PadRowsArgs& args);

// offsets of the padded side: int64 [L + 1], l * rows.
void PaddedOffsets(const Stream& stream, int64_t rows, const Tensor& offsets);

}  // namespace yardmaster
