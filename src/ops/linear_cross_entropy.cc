#include "src/ops/linear_cross_entropy.h"

#include <algorithm>

#include "src/ops/cpu/linear_cross_entropy_cpu.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/linear_cross_entropy_cuda.h"
#endif

namespace yardmaster {

void LinearCrossEntropy(const Stream& stream, const LinearCrossEntropyArgs& g, Arena& work) {
  const OpArgs check(stream, "LinearCrossEntropy");
  check.Rank("x", g.x, 2);
  check.Rank("head", g.head, 2);
  const DType type = check.WorkType("x", g.x);
  const int64_t n_T = g.x.dim(0), D = g.x.dim(1), V = g.head.dim(0);
  YM_CHECK(V > 0 && g.chunk_tokens > 0, "LinearCrossEntropy: V ", V, ", chunk_tokens ", g.chunk_tokens);
  check.Contiguous("x", g.x, type, {n_T, D});
  check.Contiguous("head", g.head, type, {V, D});
  check.Contiguous("targets", g.targets, DType::kI32, {n_T});
  check.Contiguous("loss_sum", g.loss_sum, DType::kF64, {1});
  if (g.device_scale.defined()) check.Contiguous("device_scale", g.device_scale, DType::kF64, {1});
  if (g.valid.defined()) check.Contiguous("valid", g.valid, DType::kI64, {1});
  YM_CHECK(g.dx.defined() == g.dhead.defined(), "LinearCrossEntropy: dx goes with dhead");
  if (g.dx.defined()) {
    check.Contiguous("dx", g.dx, type, {n_T, D});
    check.Contiguous("dhead", g.dhead, OpArgs::AccumType(type), {V, D});
  }
  if (g.logits.defined()) check.Contiguous("logits", g.logits, type, {n_T, V});
  ArenaScope scope(work);
  const int64_t chunk = std::min(g.chunk_tokens, n_T);
  const Tensor logits = work.Allocate("logits of a chunk", type, {chunk, V});
  const Tensor losses = work.Allocate("losses of a chunk", DType::kF64, {chunk});
  const double products = g.dx.defined() ? 3 : 1;
  check.Cost(products * 2 * static_cast<double>(n_T) * static_cast<double>(D) * static_cast<double>(V), 0,
             {n_T, V, D});
  if (stream.dry()) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::LinearCrossEntropy(stream, g, logits, losses);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::LinearCrossEntropy(stream, g, logits, losses);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
