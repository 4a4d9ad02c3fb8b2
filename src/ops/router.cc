#include "src/ops/router.h"

#include "src/ops/cpu/router_cpu.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/router_cuda.h"
#endif

namespace yardmaster {
namespace {

void CheckSpec(const RouterSpec& s) {
  YM_CHECK(0 < s.num_experts && 0 < s.top_k && s.top_k <= s.num_experts, "router: top ", s.top_k, " of ", s.num_experts);
  YM_CHECK(0 < s.num_groups && s.num_experts % s.num_groups == 0, "router: ", s.num_experts, " experts in ", s.num_groups,
           " groups");
  YM_CHECK(0 < s.topk_groups && s.topk_groups <= s.num_groups, "router: ", s.topk_groups, " of ", s.num_groups, " groups");
  YM_CHECK(s.top_k <= s.topk_groups * (s.num_experts / s.num_groups), "router: ", s.topk_groups, " groups of ",
           s.num_experts / s.num_groups, " experts cannot give ", s.top_k);
  const double largest_skew = static_cast<double>(s.num_experts) / static_cast<double>(s.top_k);
  YM_CHECK(s.force != ForcedRouting::kSkewed || (1 <= s.force_skew && s.force_skew <= largest_skew), "router: skew ",
           s.force_skew, " outside [1, ", largest_skew, "]");
}

}  // namespace

void RouterForward(const Stream& stream, const RouterSpec& spec, const RouterArgs& g) {
  const OpArgs check(stream, "RouterForward");
  CheckSpec(spec);
  check.Rank("logits", g.logits, 2);
  const DType type = check.ComputeType("logits", g.logits);
  const int64_t n_T = g.logits.dim(0), E = spec.num_experts, K = spec.top_k;
  check.Contiguous("logits", g.logits, type, {n_T, E});
  check.Contiguous("scores", g.scores, type, {n_T, E});
  check.Contiguous("idx", g.idx, DType::kI32, {n_T, K});
  check.Contiguous("w", g.w, type, {n_T, K});
  if (g.bias.defined()) check.Contiguous("bias", g.bias, type, {E});
  if (g.forced_idx.defined()) check.Contiguous("forced_idx", g.forced_idx, DType::kI32, {n_T, K});
  if (g.counts.defined()) check.Contiguous("counts", g.counts, DType::kI64, {E});
  check.Traffic({&g.logits, &g.scores, &g.idx, &g.w});
  if (stream.dry() || n_T == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::RouterForward(stream, spec, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::RouterForward(stream, spec, g);
#endif
  check.NoImplementation();
}

void RouterBackward(const Stream& stream, const RouterSpec& spec, const RouterBackwardArgs& g) {
  const OpArgs check(stream, "RouterBackward");
  CheckSpec(spec);
  check.Rank("dlogits", g.dlogits, 2);
  const DType type = check.ComputeType("dlogits", g.dlogits);
  const int64_t n_T = g.dlogits.dim(0), E = spec.num_experts, K = spec.top_k;
  check.Contiguous("dlogits", g.dlogits, type, {n_T, E});
  check.Contiguous("scores", g.scores, type, {n_T, E});
  check.Contiguous("idx", g.idx, DType::kI32, {n_T, K});
  check.Contiguous("dw", g.dw, type, {n_T, K});
  check.Traffic({&g.dw, &g.scores, &g.idx, &g.dlogits});
  if (stream.dry() || n_T == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::RouterBackward(stream, spec, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::RouterBackward(stream, spec, g);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
