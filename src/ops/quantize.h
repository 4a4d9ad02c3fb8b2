// File: src/ops/quantize.h
//
// Quantised copies of matrices for scaled GEMMs (ops/scaled_gemm.h). docs/quantisation.md has the formats and
// what becomes of special values; every device gives the same bytes.
//
// A scaled GEMM contracts along the last axis of both operands, and scales belong to runs along that axis. So
// a matrix that is contracted along its rows too gets a second copy, transposed. Both come from the
// high-precision values in one read, never one from the other.
//   fp8_block  E4M3 codes; one FP32 scale per 1x128 run of rows (activations, gradients), or 128x128 block
//              (weights)
//   mxfp8      E4M3 codes; one E8M0 scale per run of 32, weights included
//
// Ragged rows: group l owns rows [offsets[l], offsets[l+1]) of x; offsets live in device memory, undefined
// means one group of all rows. Rows at and beyond offsets[L] are neither read nor written. In the transposed
// copy the rows are the contraction, and no run may reach across groups: there group l begins at the sum over
// earlier groups of their rows rounded up to kGroupAlignment, in a row space of PaddedRows(R, L). Pad rows
// within a group are zeros: codes 0, scales of the values alone. Columns beyond the last group are not
// written. A last run may be shorter than 128 or 32. cuda wants multiples of 16 columns (of a weight: N and
// K).
#pragma once

#include "src/device/arena.h"
#include "src/device/device.h"

namespace yardmaster {

enum class QuantKind : uint8_t { kFp8Block, kMxfp8 };

struct QuantFormat {
  QuantKind kind = QuantKind::kMxfp8;
  bool power_of_two = true;  // scales of fp8_block: amax / 448 rounded up to a power of two, else exact
  int64_t run() const { return kind == QuantKind::kFp8Block ? 128 : 32; }
  DType scale_type() const { return kind == QuantKind::kFp8Block ? DType::kF32 : DType::kU8; }
  bool operator==(const QuantFormat&) const = default;
};
const char* QuantName(const QuantFormat& format);  // "fp8_block", "mxfp8"

// L of offsets [L + 1]; undefined: one group.
inline int64_t GroupsOf(const Tensor& offsets) { return offsets.defined() ? offsets.dim(0) - 1 : 1; }

inline constexpr int64_t kGroupAlignment = 128;
// Upper bound of the sum of groups' rows, each rounded up.
inline int64_t PaddedRows(int64_t R, int64_t L) {
  return (R + L * (kGroupAlignment - 1)) / kGroupAlignment * kGroupAlignment;
}

// Codes and scales of a matrix; both undefined where a copy is not wanted.
struct Quantized {
  Tensor codes;   // U8
  Tensor scales;  // ScaleShape / WeightScaleShape
  bool defined() const { return codes.defined(); }
};

// Memory for codes of this shape, of two or three axes, and their scales.
Quantized AllocateQuantized(Arena& arena, const char* what, const QuantFormat& format, const Shape& codes);

// The 8-bit copies of a weight that a run keeps: made when the weight changes, used by every product until then.
// `cols` is undefined where nothing is trained.
struct WeightCopies {
  QuantFormat format;
  Quantized rows;  // codes [L, N, K]
  Quantized cols;  // codes [L, K, N]
  bool defined() const { return rows.defined(); }
};

// Scales of codes [rows, K]: F32 [ceil(K/128), rows rounded up to 4] or, of mxfp8, U8 [ceil(K/32), the same]: rows
// fastest, so that a tile's scales are whole lines (the padding is not written).
Shape ScaleShape(const QuantFormat& format, int64_t rows, int64_t K);
// Scales of weight codes [L, N, K]: fp8_block F32 [L, ceil(N/128), ceil(K/128)]; mxfp8 U8 [L, ceil(K/32), N].
Shape WeightScaleShape(const QuantFormat& format, int64_t L, int64_t N, int64_t K);
// Of codes [rows, K] the former, of weight codes [L, N, K] the latter.
Shape ScalesOf(const QuantFormat& format, const Shape& codes);

struct QuantizeRowsArgs {
  QuantFormat format;
  Tensor x;             // [R, C] F32 or BF16, ld >= C
  Tensor offsets = {};  // int64 [L + 1]
  Quantized rows = {};  // codes [R, C]
  Quantized cols = {};  // codes [C, PaddedRows(R, L)]
};
void QuantizeRows(const Stream& stream, const QuantizeRowsArgs& args);

struct QuantizeWeightsArgs {
  QuantFormat format;
  Tensor w;             // [L, N, K] F32 or BF16
  Quantized rows = {};  // codes [L, N, K]
  Quantized cols = {};  // codes [L, K, N]
  bool through_bf16 = false;  // of values rounded to BF16 first: of F32 masters, the copies of their BF16 weights
};
void QuantizeWeights(const Stream& stream, const QuantizeWeightsArgs& args);
// Copies of a weight [L, N, K] or [N, K], F32 masters on cuda through BF16: the bytes are those of its weights in the work
// type.
void QuantizeWeights(const Stream& stream, const WeightCopies& copies, const Tensor& w);

// code * scale, rounded once to out's type (F32 or BF16; mxfp8's are exact in both, down to the subnormals of
// BF16). `cols` undoes QuantizeRowsArgs::cols: out [R, C] in the original order, pad rows left out.
struct DequantizeArgs {
  QuantFormat format;
  Quantized rows = {};  // one of the two
  Quantized cols = {};
  Tensor offsets = {};
  Tensor out;  // [R, C]
};
void Dequantize(const Stream& stream, const DequantizeArgs& args);
// Of QuantizeWeightsArgs::rows or ::cols, whichever is defined; out [L, N, K] either way.
void DequantizeWeights(const Stream& stream, const QuantizeWeightsArgs& args, const Tensor& out);

// MXFP8 scales in the order that cuBLASLt reads (VEC32_UE8M0; NVIDIA's cuBLAS documentation, "1D Block Scaling
// Factors Layout"): tiles of 128 rows x 4 scales, 512 bytes each, row tile by row tile; in a tile the scale of
// row r, run c is byte (r % 32) * 16 + r / 32 * 4 + c. Absent rows and runs are 0. Every group's tiles are those
// of a matrix of its own and lie behind those of the group before; tiles beyond the last group are not written.
// Of group l, b(l) being the sum over earlier groups of their rows in blocks of 128 (undefined offsets: one group):
//   rows     of a `rows` copy: begin at tile row b(l)
//   weights  of matrix l: begin at tile row l * ceil(N / 128)
//   columns  of a `cols` copy, whose groups lie along the contraction, each padded to 128: ceil(C / 128) rows
//            of as many tiles as the group has blocks, from tile b(l) * ceil(C / 128) on
Shape TileScaleShape(int64_t rows, int64_t L, int64_t runs);     // [PaddedRows / 128, ceil(runs / 4), 512]
Shape TileWeightScaleShape(int64_t L, int64_t N, int64_t runs);  // [L * ceil(N / 128), ceil(runs / 4), 512]
Shape TileColumnScaleShape(int64_t rows, int64_t L, int64_t C);  // [PaddedRows / 128, ceil(C / 128), 512]
// scales: ScaleShape of codes with `rows` rows.
void ScalesToTiles(const Stream& stream, const Tensor& scales, int64_t rows, const Tensor& offsets,
                   const Tensor& tiles);
// scales: WeightScaleShape of mxfp8, [L, runs, N].
void WeightScalesToTiles(const Stream& stream, const Tensor& scales, const Tensor& tiles);
// scales: ScaleShape of codes [C, PaddedRows(rows, L)], the transposed copy of `rows` rows.
void ColumnScalesToTiles(const Stream& stream, const Tensor& scales, int64_t C, int64_t rows,
                         const Tensor& offsets, const Tensor& tiles);

}  // namespace yardmaster
