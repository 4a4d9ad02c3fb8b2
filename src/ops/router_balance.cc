#include "src/ops/router_balance.h"

#include "src/ops/cpu/router_balance_cpu.h"
#include "src/ops/cuda/workspaces.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/router_balance_cuda.h"
#endif

namespace yardmaster {
namespace {

void Check(const OpArgs& check, const RouterSpec& spec, const RouterBalanceArgs& g) {
  check.Rank("scores", g.scores, 2);
  check.Rank("load", g.load, 2);
  const DType type = check.ComputeType("scores", g.scores);
  const int64_t n_T = g.scores.dim(0), E = spec.num_experts, B = g.load.dim(0);
  YM_CHECK(0 < spec.top_k && spec.top_k <= E, "router balance: top ", spec.top_k, " of ", E);
  YM_CHECK(B > 0 && n_T % B == 0, "router balance: ", n_T, " tokens in ", B, " sequences");
  check.Contiguous("scores", g.scores, type, {n_T, E});
  check.Contiguous("load", g.load, DType::kI64, {B, E});
  if (g.logits.defined()) check.Contiguous("logits", g.logits, type, {n_T, E});
  if (g.previous.defined()) check.Contiguous("previous", g.previous, DType::kI64, {E});
  if (g.sums.defined()) check.Contiguous("sums", g.sums, DType::kF64, {4});
}

}  // namespace

void RouterBalanceForward(const Stream& stream, const RouterSpec& spec, const RouterBalanceArgs& g,
                          Arena& work) {
  const OpArgs check(stream, "RouterBalanceForward");
  Check(check, spec, g);
  ArenaScope scope(work);
  Tensor mass, squares;
  if (stream.target() == DeviceKind::kCuda) {
    const int64_t B = g.load.dim(0), chunks = B * cuda::BalanceChunks(g.scores.dim(0) / B);
    mass = work.Allocate("score sums of chunks", DType::kF64, {chunks, spec.num_experts});
    squares = work.Allocate("z sums of chunks", DType::kF64, {chunks});
  }
  if (stream.dry() || g.scores.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::RouterBalanceForward(stream, spec, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::RouterBalanceForward(stream, spec, g, mass, squares);
#endif
  check.NoImplementation();
}

void RouterBalanceBackward(const Stream& stream, const RouterSpec& spec, const RouterBalanceWeights& weights,
                           const RouterBalanceArgs& g, const Tensor& dlogits) {
  const OpArgs check(stream, "RouterBalanceBackward");
  Check(check, spec, g);
  check.Contiguous("dlogits", dlogits, g.scores.dtype(), g.scores.shape());
  YM_CHECK(weights.z == 0 || g.logits.defined(), "router balance: the z-loss needs logits");
  YM_CHECK(weights.global_batch == 0 || g.previous.defined(),
           "router balance: the global-batch loss needs the previous load");
  if (stream.dry() || g.scores.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::RouterBalanceBackward(stream, spec, weights, g, dlogits);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::RouterBalanceBackward(stream, spec, weights, g, dlogits);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
