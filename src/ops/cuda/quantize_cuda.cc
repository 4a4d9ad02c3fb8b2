#include "src/ops/cuda/quantize_cuda.h"

#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {
namespace {

const int64_t* Pointer(const Tensor& offsets) { return offsets.defined() ? offsets.as<int64_t>() : nullptr; }

}  // namespace

QuantRule RuleOf(const QuantFormat& format) {
  if (format.kind == QuantKind::kMxfp8) return QuantRule::kMx;
  return format.power_of_two ? QuantRule::kPowerOfTwo : QuantRule::kExact;
}

QuantCopies CopiesOf(const Quantized& rows, const Quantized& cols) {
  QuantCopies to;
  if (rows.defined()) {
    to.codes = rows.codes.as<uint8_t>();
    to.scales = rows.scales.data();
    to.scales_ld = rows.scales.ld();
  }
  if (cols.defined()) {
    to.codes_t = cols.codes.as<uint8_t>();
    to.scales_t = cols.scales.data();
    to.scales_t_ld = cols.scales.ld();
    to.P = cols.codes.ld();
  }
  return to;
}

RaggedRows RaggedRowsOf(const Tensor& x, int64_t columns, const Tensor& offsets) {
  const int64_t per_pack = 16 / DTypeBytes(x.dtype());
  YM_CHECK(reinterpret_cast<uintptr_t>(x.data()) % 16 == 0 && x.ld() % per_pack == 0, "rows of ", x.shape(),
           ", ", x.ld(), " apart, are not 16-byte aligned");
  return {x.data(), x.dim(0), columns, x.ld(), Pointer(offsets), GroupsOf(offsets)};
}

void QuantizeRows(const Stream& stream, const QuantizeRowsArgs& g) {
  YM_CUDA_CHECK(stream, "QuantizeRows",
                QuantizeRaggedRows(KernelTypeOf(g.x.dtype()), RuleOf(g.format),
                                   RaggedRowsOf(g.x, g.x.dim(1), g.offsets), CopiesOf(g.rows, g.cols),
                                   CudaStream(stream)));
}

void QuantizeWeights(const Stream& stream, const QuantizeWeightsArgs& g) {
  YM_CUDA_CHECK(stream, "QuantizeWeights",
                QuantizeExpertWeights(KernelTypeOf(g.w.dtype()), g.through_bf16, RuleOf(g.format), g.w.data(),
                                      g.w.dim(0), g.w.dim(1), g.w.dim(2), CopiesOf(g.rows, g.cols),
                                      CudaStream(stream)));
}

void Dequantize(const Stream& stream, const DequantizeArgs& g) {
  YM_CUDA_CHECK(stream, "Dequantize",
                DequantizeRaggedRows(KernelTypeOf(g.out.dtype()), RuleOf(g.format), CopiesOf(g.rows, g.cols),
                                     g.out.dim(0), g.out.dim(1), Pointer(g.offsets), GroupsOf(g.offsets),
                                     g.out.data(), CudaStream(stream)));
}

void DequantizeWeights(const Stream& stream, const QuantizeWeightsArgs& g, const Tensor& out) {
  YM_CUDA_CHECK(stream, "DequantizeWeights",
                DequantizeExpertWeights(KernelTypeOf(out.dtype()), RuleOf(g.format), CopiesOf(g.rows, g.cols),
                                        out.dim(0), out.dim(1), out.dim(2), out.data(), CudaStream(stream)));
}

void ScalesToTiles(const Stream& stream, const Tensor& scales, int64_t rows, const Tensor& offsets,
                   const Tensor& tiles) {
  YM_CUDA_CHECK(stream, "ScalesToTiles",
                MxScalesToTiles(scales.as<uint8_t>(), scales.ld(), rows, scales.dim(0), Pointer(offsets),
                                GroupsOf(offsets), tiles.as<uint8_t>(), CudaStream(stream)));
}

void WeightScalesToTiles(const Stream& stream, const Tensor& scales, const Tensor& tiles) {
  YM_CUDA_CHECK(stream, "WeightScalesToTiles",
                MxWeightScalesToTiles(scales.as<uint8_t>(), scales.dim(0), scales.dim(2), scales.dim(1),
                                      tiles.as<uint8_t>(), CudaStream(stream)));
}

void ColumnScalesToTiles(const Stream& stream, const Tensor& scales, int64_t C, int64_t rows,
                         const Tensor& offsets, const Tensor& tiles) {
  YM_CUDA_CHECK(stream, "ColumnScalesToTiles",
                MxColumnScalesToTiles(scales.as<uint8_t>(), scales.ld(), C, rows, Pointer(offsets),
                                      GroupsOf(offsets), tiles.as<uint8_t>(), CudaStream(stream)));
}

}  // namespace yardmaster::cuda
