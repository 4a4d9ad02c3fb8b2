#include "src/ops/cuda/quantize_fused_cuda.h"

#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/quantize_cuda.h"

namespace yardmaster::cuda {

void QuantizeSwiglu(const Stream& stream, const QuantizeSwigluArgs& g) {
  YM_CUDA_CHECK(stream, "QuantizeSwiglu",
                QuantizeSwigluRows(RuleOf(g.format), RaggedRowsOf(g.gate_up, g.gate_up.dim(1) / 2, g.offsets),
                                   g.w.defined() ? g.w.as<float>() : nullptr, CopiesOf(g.rows, g.cols),
                                   CudaStream(stream)));
}

void QuantizeNormed(const Stream& stream, const QuantizeNormedArgs& g) {
  YM_CUDA_CHECK(
      stream, "QuantizeNormed",
      QuantizeNormedRows(RuleOf(g.format), RaggedRowsOf(g.h, g.h.dim(1), g.offsets), g.rstd.as<float>(),
                         g.weight.data(), CopiesOf(g.rows, g.cols), CudaStream(stream)));
}

}  // namespace yardmaster::cuda
