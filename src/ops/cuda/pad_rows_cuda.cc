#include "src/ops/cuda/pad_rows_cuda.h"

#include "kernels/pad_rows/pad_rows.h"
#include "src/ops/cuda/cuda_stream.h"

namespace yardmaster::cuda {
namespace {

PaddedRows Rows(const PadRowsArgs& g) {
  const int64_t L = g.offsets.dim(0) - 1;
  return {.ragged = g.ragged.data(),
          .offsets = g.offsets.as<int64_t>(),
          .padded = g.padded.data(),
          .experts = L,
          .rows = g.padded.dim(0) / L,
          .row_bytes = g.padded.bytes() / g.padded.dim(0)};
}

}  // namespace

void PadRows(const Stream& stream, const PadRowsArgs& g) {
  YM_CUDA_CHECK(stream, "PadRows", PadExpertRows(Rows(g), CudaStream(stream)));
}

void UnpadRows(const Stream& stream, const PadRowsArgs& g) {
  YM_CUDA_CHECK(stream, "UnpadRows", UnpadExpertRows(Rows(g), CudaStream(stream)));
}

void PaddedOffsets(const Stream& stream, int64_t rows, const Tensor& offsets) {
  YM_CUDA_CHECK(stream, "PaddedOffsets",
                FillPaddedOffsets(rows, offsets.as<int64_t>(), offsets.dim(0), CudaStream(stream)));
}

}  // namespace yardmaster::cuda
