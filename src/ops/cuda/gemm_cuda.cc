#include "src/ops/cuda/gemm_cuda.h"

#include "kernels/common/scale_rows.h"
#include "src/ops/cuda/blas_lt.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {

void Gemm(const Stream& stream, const GemmArgs& g) {
  const Tensor& c = g.beta != 0 && g.c.defined() ? g.c : g.d;
  const int64_t m = g.d.dim(0), n = g.d.dim(1), k = g.a.dim(g.trans_a ? 0 : 1);
  if (k == 0) {
    YM_CUDA_CHECK(stream, "Gemm", ScaleRows(KernelTypeOf(g.d.dtype()), c.data(), c.ld(), g.d.data(), g.d.ld(), m, n, g.beta,
                                            CudaStream(stream)));
    return;
  }
  const MatmulShape shape{.type = g.a.dtype(), .out = g.d.dtype(), .m = m, .n = n, .k = k, .lda = g.a.ld(), .ldb = g.b.ld(),
                          .ldc = c.ld(), .ldd = g.d.ld(), .trans_a = g.trans_a, .trans_b = g.trans_b};
  BlasLtOf(stream).Run(CudaStream(stream), "Gemm", shape, g.a.data(), g.b.data(), c.data(), g.d.data(), g.alpha, g.beta);
}

std::string GemmAlgorithms(const Stream& stream) { return BlasLtOf(stream).Table(); }

}  // namespace yardmaster::cuda
