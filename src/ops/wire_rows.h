// File: src/ops/wire_rows.h
//
// Rows on their way to experts in 8 bits: a row of D values is D codes, then its scales, in one row of bytes that
// dispatch moves as it moves any (comm/ep/dispatcher.h). Runs lie along the row (ops/quantize.h): a scale is an
// FP32 for 128 (fp8_block) or an E8M0 byte for 32 (mxfp8), so that both take D / 32 bytes. Scales are powers of two.
//   PackRows    x_TD -> wire_TW, before dispatch: a token is quantised once, however many experts it goes to
//   UnpackRows  wire_RW -> copies for products, both from one read: `rows` has the values that were packed. `cols` is
//               quantised anew along the other axis, from the values that were received. With powers of two that
//               rounds a second time only what lies under about 2^-15 of its run's largest value, along either axis:
//               elsewhere both keep the same four bits
// Received rows can be kept for backward as they are, in about half of BF16's memory.
#pragma once

#include "src/device/arena.h"
#include "src/ops/quantize.h"

namespace yardmaster {

// W: the bytes of a row, a multiple of 16 so that rows move in whole packs. Scales begin at WireScales(D).
inline int64_t WireScales(int64_t D) { return (D + 15) / 16 * 16; }
inline int64_t WireBytes(const QuantFormat& format, int64_t D) {
  const int64_t runs = (D + format.run() - 1) / format.run();
  return (WireScales(D) + runs * DTypeBytes(format.scale_type()) + 15) / 16 * 16;
}

struct PackRowsArgs {
  QuantFormat format;  // powers of two
  Tensor x;            // [T, D] F32 on cpu, BF16 on cuda; cuda: D a multiple of 16
  Tensor wire;         // U8 [T, WireBytes]
};
void PackRows(const Stream& stream, const PackRowsArgs& args, Arena& work);

struct UnpackRowsArgs {
  QuantFormat format;
  int64_t D = 0;
  Tensor wire;          // U8 [R, WireBytes]
  Tensor offsets = {};  // int64 [L + 1]: ragged rows, as of QuantizeRows
  Quantized rows = {};  // codes [R, D]
  Quantized cols = {};  // codes [D, PaddedRows(R, L)]
};
void UnpackRows(const Stream& stream, const UnpackRowsArgs& args, Arena& work);

}  // namespace yardmaster
