#include "src/ops/cuda/rmsnorm_cuda.h"

#include "kernels/norm/rmsnorm.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {

void RmsNormForward(const Stream& stream, const RmsNormArgs& g) {
  YM_CUDA_CHECK(stream, "RmsNormForward",
                yardmaster::RmsNormForward(KernelTypeOf(g.x.dtype()),
                                           RmsNormForwardRows{.rows = g.x.dim(0),
                                                              .D = g.x.dim(1),
                                                              .x = g.x.data(),
                                                              .ldx = g.x.ld(),
                                                              .residual = g.residual.data(),
                                                              .w = g.w.data(),
                                                              .eps = g.eps,
                                                              .h = g.h.data(),
                                                              .y = g.y.data(),
                                                              .rstd = g.rstd.data()},
                                           CudaStream(stream)));
}

void RmsNormBackward(const Stream& stream, const RmsNormBackwardArgs& g, const Tensor& partial_dw) {
  YM_CUDA_CHECK(stream, "RmsNormBackward",
                yardmaster::RmsNormBackward(
                    KernelTypeOf(g.h.dtype()),
                    RmsNormBackwardRows{.rows = g.h.dim(0),
                                        .D = g.h.dim(1),
                                        .dy = g.dy.data(),
                                        .h = g.h.data(),
                                        .ldh = g.h.ld(),
                                        .w = g.w.data(),
                                        .rstd = g.rstd.data(),
                                        .dresidual = g.dresidual.data(),
                                        .dh = g.dh.data(),
                                        .lddh = g.dh.ld(),
                                        .dw = g.dw.data(),
                                        .beta_w = g.beta_w,
                                        .partial_dw = partial_dw.data(),
                                        .partials = partial_dw.defined() ? partial_dw.dim(0) : 0},
                    CudaStream(stream)));
}

}  // namespace yardmaster::cuda
