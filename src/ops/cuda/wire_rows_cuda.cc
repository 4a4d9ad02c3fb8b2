#include "src/ops/cuda/wire_rows_cuda.h"

#include "kernels/quantize/wire.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/quantize_cuda.h"

namespace yardmaster::cuda {

void PackRows(const Stream& stream, const PackRowsArgs& g) {
  if (g.x.elements() == 0) return;
  YM_CUDA_CHECK(stream, "PackRows",
                PackWireRows(RuleOf(g.format), g.x.data(), g.x.dim(0), g.x.dim(1),
                             {g.wire.as<uint8_t>(), g.wire.dim(1), WireScales(g.x.dim(1))}, CudaStream(stream)));
}

void UnpackRows(const Stream& stream, const UnpackRowsArgs& g) {
  if (g.wire.elements() == 0) return;
  YM_CUDA_CHECK(stream, "UnpackRows",
                UnpackWireRows(RuleOf(g.format), {g.wire.as<uint8_t>(), g.wire.dim(1), WireScales(g.D)},
                               RaggedRowsOf(g.wire, g.D, g.offsets),
                               CopiesOf(g.rows, g.cols), CudaStream(stream)));
}

}  // namespace yardmaster::cuda
