#include "src/ops/quantize.h"

#include "src/ops/cpu/quantize_cpu.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/quantize_cuda.h"
#endif

namespace yardmaster {
namespace {

int64_t CeilDiv(int64_t n, int64_t d) { return (n + d - 1) / d; }

// F32 or BF16, what is quantised and what dequantising gives.
void CheckSource(const OpArgs& check, const char* name, const Tensor& t, int rank) {
  check.Rank(name, t, rank);
  YM_CHECK(t.dtype() == DType::kF32 || t.dtype() == DType::kBF16, name, " is ", DTypeName(t.dtype()),
           ", not F32 or BF16");
  check.Strided(name, t, t.dtype(), t.shape());
}

int64_t Groups(const OpArgs& check, const Tensor& offsets) {
  if (!offsets.defined()) return 1;
  check.Rank("offsets", offsets, 1);
  check.Contiguous("offsets", offsets, DType::kI64, {offsets.dim(0)});
  YM_CHECK(offsets.dim(0) >= 2, "offsets ", offsets.shape(), ": no group");
  return offsets.dim(0) - 1;
}

void CheckQuantized(const OpArgs& check, const char* name, const QuantFormat& format, const Quantized& q,
                    const Shape& codes) {
  if (!q.defined()) return;
  const Shape scales = codes.rank() == 3 ? WeightScaleShape(format, codes[0], codes[1], codes[2])
                                         : ScaleShape(format, codes[0], codes[1]);
  check.Contiguous(name, q.codes, DType::kU8, codes);
  check.Contiguous(name, q.scales, format.scale_type(), scales);
}

// Kernels move 16 codes at once.
void CheckColumns(const Stream& stream, int64_t columns) {
  YM_CHECK(stream.target() != DeviceKind::kCuda || columns % 16 == 0, columns,
           " columns: cuda takes multiples of 16");
}

}  // namespace

const char* QuantName(const QuantFormat& format) {
  return format.kind == QuantKind::kFp8Block ? "fp8_block" : "mxfp8";
}

Shape ScaleShape(const QuantFormat& format, int64_t rows, int64_t K) {
  return {CeilDiv(K, format.run()), CeilDiv(rows, 4) * 4};
}

Shape WeightScaleShape(const QuantFormat& format, int64_t L, int64_t N, int64_t K) {
  if (format.kind == QuantKind::kMxfp8) return {L, CeilDiv(K, format.run()), N};
  return {L, CeilDiv(N, format.run()), CeilDiv(K, format.run())};
}

Shape TileScaleShape(int64_t rows, int64_t L, int64_t runs) {
  return {PaddedRows(rows, L) / kGroupAlignment, CeilDiv(runs, 4), 512};
}

void QuantizeRows(const Stream& stream, const QuantizeRowsArgs& g) {
  const OpArgs check(stream, "QuantizeRows");
  CheckSource(check, "x", g.x, 2);
  const int64_t R = g.x.dim(0), C = g.x.dim(1), L = Groups(check, g.offsets);
  CheckQuantized(check, "rows", g.format, g.rows, {R, C});
  CheckQuantized(check, "cols", g.format, g.cols, {C, PaddedRows(R, L)});
  CheckColumns(stream, C);
  check.Traffic({&g.x, &g.rows.codes, &g.rows.scales, &g.cols.codes, &g.cols.scales}, {R, C});
  if (stream.dry() || g.x.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::QuantizeRows(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::QuantizeRows(stream, g);
#endif
  check.NoImplementation();
}

void QuantizeWeights(const Stream& stream, const QuantizeWeightsArgs& g) {
  const OpArgs check(stream, "QuantizeWeights");
  CheckSource(check, "w", g.w, 3);
  const int64_t L = g.w.dim(0), N = g.w.dim(1), K = g.w.dim(2);
  YM_CHECK(g.w.contiguous(), "w ", g.w.shape(), " is strided");
  CheckQuantized(check, "rows", g.format, g.rows, {L, N, K});
  CheckQuantized(check, "cols", g.format, g.cols, {L, K, N});
  CheckColumns(stream, N);
  CheckColumns(stream, K);
  check.Traffic({&g.w, &g.rows.codes, &g.rows.scales, &g.cols.codes, &g.cols.scales}, {L, N, K});
  if (stream.dry() || g.w.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::QuantizeWeights(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::QuantizeWeights(stream, g);
#endif
  check.NoImplementation();
}

void QuantizeWeights(const Stream& stream, const WeightCopies& copies, const Tensor& w) {
  QuantizeWeights(stream, {.format = copies.format,
                           .w = w.shape().rank() == 3 ? w : w.Reshape({1, w.dim(0), w.dim(1)}),
                           .rows = copies.rows,
                           .cols = copies.cols,
                           .through_bf16 = stream.target() == DeviceKind::kCuda});
}

void Dequantize(const Stream& stream, const DequantizeArgs& g) {
  const OpArgs check(stream, "Dequantize");
  CheckSource(check, "out", g.out, 2);
  const int64_t R = g.out.dim(0), C = g.out.dim(1), L = Groups(check, g.offsets);
  YM_CHECK(g.out.contiguous(), "out ", g.out.shape(), " is strided");
  YM_CHECK(g.rows.defined() != g.cols.defined(), "one of rows and cols");
  CheckQuantized(check, "rows", g.format, g.rows, {R, C});
  CheckQuantized(check, "cols", g.format, g.cols, {C, PaddedRows(R, L)});
  CheckColumns(stream, C);
  if (stream.dry() || g.out.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::Dequantize(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::Dequantize(stream, g);
#endif
  check.NoImplementation();
}

void DequantizeWeights(const Stream& stream, const QuantizeWeightsArgs& g, const Tensor& out) {
  const OpArgs check(stream, "DequantizeWeights");
  CheckSource(check, "out", out, 3);
  const int64_t L = out.dim(0), N = out.dim(1), K = out.dim(2);
  YM_CHECK(out.contiguous(), "out ", out.shape(), " is strided");
  YM_CHECK(g.rows.defined() != g.cols.defined(), "one of rows and cols");
  CheckQuantized(check, "rows", g.format, g.rows, {L, N, K});
  CheckQuantized(check, "cols", g.format, g.cols, {L, K, N});
  CheckColumns(stream, N);
  CheckColumns(stream, K);
  if (stream.dry() || out.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::DequantizeWeights(stream, g, out);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::DequantizeWeights(stream, g, out);
#endif
  check.NoImplementation();
}

void ScalesToTiles(const Stream& stream, const Tensor& scales, int64_t R, const Tensor& offsets,
                   const Tensor& tiles) {
  const OpArgs check(stream, "ScalesToTiles");
  check.Rank("scales", scales, 2);
  const int64_t runs = scales.dim(0), L = Groups(check, offsets);
  check.Contiguous("scales", scales, DType::kU8, {runs, CeilDiv(R, 4) * 4});
  check.Contiguous("tiles", tiles, DType::kU8, TileScaleShape(R, L, runs));
  if (stream.dry() || tiles.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::ScalesToTiles(stream, scales, R, offsets, tiles);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::ScalesToTiles(stream, scales, R, offsets, tiles);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
