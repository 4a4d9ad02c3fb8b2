#include "src/ops/cuda/swiglu_cuda.h"

#include "kernels/swiglu/swiglu.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {
namespace {

const int64_t* RowsPointer(const Tensor& num_rows) {
  return num_rows.defined() ? num_rows.as<int64_t>() : nullptr;
}

}  // namespace

void SwigluForward(const Stream& stream, const SwigluArgs& g) {
  YM_CUDA_CHECK(
      stream, "SwigluForward",
      SwigluForwardRows(KernelTypeOf(g.act.dtype()), g.gate_up.data(), g.w.data(), RowsPointer(g.num_rows),
                        g.act.dim(0), g.act.dim(1), g.act.data(), CudaStream(stream)));
}

void SwigluBackward(const Stream& stream, const SwigluBackwardArgs& g) {
  YM_CUDA_CHECK(stream, "SwigluBackward",
                SwigluBackwardRows(KernelTypeOf(g.dact.dtype()), g.dact.data(), g.gate_up.data(), g.w.data(),
                                   RowsPointer(g.num_rows), g.dact.dim(0), g.dact.dim(1), g.dgate_up.data(),
                                   g.dw.data(), g.act.data(), CudaStream(stream)));
}

}  // namespace yardmaster::cuda
