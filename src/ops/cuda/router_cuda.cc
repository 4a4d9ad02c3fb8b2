#include "src/ops/cuda/router_cuda.h"

#include "kernels/router/router.h"
#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {
namespace {

static_assert(static_cast<int>(RouterScore::kSigmoid) == static_cast<int>(RouterScoring::kSigmoid));
static_assert(static_cast<int>(RouterScore::kSoftmax) == static_cast<int>(RouterScoring::kSoftmax));
static_assert(static_cast<int>(GroupScore::kTop2Sum) == static_cast<int>(RouterGrouping::kTop2Sum));
static_assert(static_cast<int>(GroupScore::kMax) == static_cast<int>(RouterGrouping::kMax));
static_assert(static_cast<int>(ForcedRouting::kNone) == static_cast<int>(RouterForce::kNone));
static_assert(static_cast<int>(ForcedRouting::kBalanced) == static_cast<int>(RouterForce::kBalanced));
static_assert(static_cast<int>(ForcedRouting::kSkewed) == static_cast<int>(RouterForce::kSkewed));

RouterShape ShapeOf(const RouterSpec& spec, int64_t tokens) {
  if (spec.num_experts > kRouterMaxExperts || spec.num_groups > kRouterMaxGroups) {
    throw ConfigError(StrCat("the cuda router takes at most ", kRouterMaxExperts, " experts in ",
                             kRouterMaxGroups, " groups"),
                      StrCat("a router of ", spec.num_experts, " experts in ", spec.num_groups, " groups"),
                      "set runtime.device to cpu");
  }
  return {.tokens = tokens,
          .experts = static_cast<int>(spec.num_experts),
          .top_k = static_cast<int>(spec.top_k),
          .groups = static_cast<int>(spec.num_groups),
          .topk_groups = static_cast<int>(spec.topk_groups),
          .scoring = static_cast<RouterScoring>(spec.score),
          .grouping = static_cast<RouterGrouping>(spec.group_score),
          .normalise = spec.normalise,
          .scaling = spec.scaling,
          .force = static_cast<RouterForce>(spec.force),
          .force_skew = spec.force_skew};
}

}  // namespace

void RouterForward(const Stream& stream, const RouterSpec& spec, const RouterArgs& g) {
  YM_CUDA_CHECK(stream, "RouterForward",
                RouteTokens(KernelTypeOf(g.logits.dtype()), ShapeOf(spec, g.logits.dim(0)), g.logits.data(),
                            g.bias.data(), g.forced_idx.defined() ? g.forced_idx.as<int32_t>() : nullptr,
                            g.scores.data(), g.idx.as<int32_t>(), g.w.data(),
                            g.counts.defined() ? g.counts.as<int64_t>() : nullptr, CudaStream(stream)));
}

void RouterBackward(const Stream& stream, const RouterSpec& spec, const RouterBackwardArgs& g) {
  YM_CUDA_CHECK(
      stream, "RouterBackward",
      RouteTokensBackward(KernelTypeOf(g.dlogits.dtype()), ShapeOf(spec, g.dlogits.dim(0)), g.dw.data(),
                          g.scores.data(), g.idx.as<int32_t>(), g.dlogits.data(), CudaStream(stream)));
}

}  // namespace yardmaster::cuda
