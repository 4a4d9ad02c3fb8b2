#include "src/ops/cuda/linear_cross_entropy_cuda.h"

#include <algorithm>

#include "kernels/common/scale_rows.h"
#include "kernels/loss/cross_entropy.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/gemm_cuda.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {

void LinearCrossEntropy(const Stream& stream, const LinearCrossEntropyArgs& g, const Tensor& logits_work,
                        const Tensor& losses_work) {
  constexpr const char* kOp = "LinearCrossEntropy";
  const int64_t n_T = g.x.dim(0), D = g.x.dim(1), V = g.head.dim(0);
  const bool gradient = g.dx.defined();
  const cudaStream_t s = CudaStream(stream);
  const int32_t* targets = g.targets.as<int32_t>();
  int64_t* valid = g.valid.defined() ? g.valid.as<int64_t>() : nullptr;
  double* losses = losses_work.as<double>();
  const double* device_scale = g.device_scale.defined() ? g.device_scale.as<double>() : nullptr;
  double beta_head = g.beta_head;
  for (int64_t t0 = 0; t0 < n_T; t0 += g.chunk_tokens) {
    const int64_t t1 = std::min(t0 + g.chunk_tokens, n_T), n = t1 - t0;
    const Tensor x = g.x.Slice(t0, t1), z = logits_work.Slice(0, n);
    cuda::Gemm(stream, {.a = x, .b = g.head, .d = z, .trans_b = true});
    if (g.logits.defined()) {
      YM_CUDA_CHECK(stream, kOp, cudaMemcpyAsync(g.logits.Slice(t0, t1).data(), z.data(), static_cast<size_t>(z.bytes()),
                                                 cudaMemcpyDeviceToDevice, s));
    }
    YM_CUDA_CHECK(stream, kOp, CrossEntropyRows(KernelTypeOf(z.dtype()), z.data(), n, V, targets + t0, g.grad_scale,
                                                device_scale, gradient, losses, s));
    YM_CUDA_CHECK(stream, kOp, AddLosses(losses, targets + t0, n, g.loss_sum.as<double>(), valid, s));
    if (gradient && D > 0) {
      cuda::Gemm(stream, {.a = z, .b = g.head, .d = g.dx.Slice(t0, t1)});
      cuda::Gemm(stream, {.a = z, .b = x, .d = g.dhead, .trans_a = true, .beta = beta_head});
    }
    beta_head = 1;  // later chunks add
  }
  if (gradient && n_T == 0) {  // no chunk has scaled dhead
    YM_CUDA_CHECK(stream, kOp, ScaleRows(KernelTypeOf(g.dhead.dtype()), g.dhead.data(), D, g.dhead.data(), D, V, D, beta_head, s));
  }
}

}  // namespace yardmaster::cuda
