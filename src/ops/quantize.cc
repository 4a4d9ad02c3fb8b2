#include "src/ops/quantize.h"

#include "src/ops/cpu/quantize_cpu.h"
#include "src/ops/quantize_checks.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/quantize_cuda.h"
#endif

namespace yardmaster {
namespace {

int64_t CeilDiv(int64_t n, int64_t d) { return (n + d - 1) / d; }

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

Shape ScalesOf(const QuantFormat& format, const Shape& codes) {
  return codes.rank() == 3 ? WeightScaleShape(format, codes[0], codes[1], codes[2])
                           : ScaleShape(format, codes[0], codes[1]);
}

Quantized AllocateQuantized(Arena& arena, const char* what, const QuantFormat& format, const Shape& codes) {
  return {arena.Allocate(what, DType::kU8, codes), arena.Allocate(what, format.scale_type(), ScalesOf(format, codes))};
}

Shape TileScaleShape(int64_t rows, int64_t L, int64_t runs) {
  return {PaddedRows(rows, L) / kGroupAlignment, CeilDiv(runs, 4), 512};
}

Shape TileWeightScaleShape(int64_t L, int64_t N, int64_t runs) {
  return {L * CeilDiv(N, kGroupAlignment), CeilDiv(runs, 4), 512};
}

Shape TileColumnScaleShape(int64_t rows, int64_t L, int64_t C) {
  return {PaddedRows(rows, L) / kGroupAlignment, CeilDiv(C, kGroupAlignment), 512};
}

void QuantizeRows(const Stream& stream, const QuantizeRowsArgs& g) {
  const OpArgs check(stream, "QuantizeRows");
  CheckHigh(check, "x", g.x, 2);
  const int64_t R = g.x.dim(0), C = g.x.dim(1), L = CheckOffsets(check, g.offsets);
  CheckCopies(stream, check, g.format, g.rows, g.cols, R, C, L);
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
  CheckHigh(check, "w", g.w, 3);
  const int64_t L = g.w.dim(0), N = g.w.dim(1), K = g.w.dim(2);
  YM_CHECK(g.w.contiguous(), "w ", g.w.shape(), " is strided");
  CheckWeightCopies(stream, check, g.format, g.rows, g.cols, {L, N, K});
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
  CheckHigh(check, "out", g.out, 2);
  const int64_t R = g.out.dim(0), C = g.out.dim(1), L = CheckOffsets(check, g.offsets);
  YM_CHECK(g.out.contiguous(), "out ", g.out.shape(), " is strided");
  YM_CHECK(g.rows.defined() != g.cols.defined(), "one of rows and cols");
  CheckCopies(stream, check, g.format, g.rows, g.cols, R, C, L);
  if (stream.dry() || g.out.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::Dequantize(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::Dequantize(stream, g);
#endif
  check.NoImplementation();
}

void DequantizeWeights(const Stream& stream, const QuantizeWeightsArgs& g, const Tensor& out) {
  const OpArgs check(stream, "DequantizeWeights");
  CheckHigh(check, "out", out, 3);
  YM_CHECK(out.contiguous(), "out ", out.shape(), " is strided");
  YM_CHECK(g.rows.defined() != g.cols.defined(), "one of rows and cols");
  CheckWeightCopies(stream, check, g.format, g.rows, g.cols, out.shape());
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
  const int64_t runs = scales.dim(0), L = CheckOffsets(check, offsets);
  check.Contiguous("scales", scales, DType::kU8, {runs, CeilDiv(R, 4) * 4});
  check.Contiguous("tiles", tiles, DType::kU8, TileScaleShape(R, L, runs));
  if (stream.dry() || tiles.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::ScalesToTiles(stream, scales, R, offsets, tiles);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::ScalesToTiles(stream, scales, R, offsets, tiles);
#endif
  check.NoImplementation();
}

void WeightScalesToTiles(const Stream& stream, const Tensor& scales, const Tensor& tiles) {
  const OpArgs check(stream, "WeightScalesToTiles");
  check.Rank("scales", scales, 3);
  const int64_t L = scales.dim(0), runs = scales.dim(1), N = scales.dim(2);
  check.Contiguous("scales", scales, DType::kU8, {L, runs, N});
  check.Contiguous("tiles", tiles, DType::kU8, TileWeightScaleShape(L, N, runs));
  if (stream.dry() || tiles.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::WeightScalesToTiles(stream, scales, tiles);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::WeightScalesToTiles(stream, scales, tiles);
#endif
  check.NoImplementation();
}

void ColumnScalesToTiles(const Stream& stream, const Tensor& scales, int64_t C, int64_t R,
                         const Tensor& offsets, const Tensor& tiles) {
  const OpArgs check(stream, "ColumnScalesToTiles");
  const int64_t L = CheckOffsets(check, offsets);
  check.Contiguous("scales", scales, DType::kU8, {PaddedRows(R, L) / 32, CeilDiv(C, 4) * 4});
  check.Contiguous("tiles", tiles, DType::kU8, TileColumnScaleShape(R, L, C));
  if (stream.dry() || tiles.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu)
    return cpu::ColumnScalesToTiles(stream, scales, C, R, offsets, tiles);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda)
    return cuda::ColumnScalesToTiles(stream, scales, C, R, offsets, tiles);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
