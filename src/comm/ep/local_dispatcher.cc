#include "src/comm/ep/local_dispatcher.h"

#include "src/ops/permute.h"

namespace yardmaster {

LocalDispatcher::LocalDispatcher(int64_t num_experts, int64_t top_k)
    : num_experts_(num_experts), top_k_(top_k) {
  YM_CHECK(num_experts >= 1 && top_k >= 1 && top_k <= num_experts, "top ", top_k, " of ", num_experts,
           " experts");
}

void LocalDispatcher::Plan(const Stream& stream, const Tensor& idx_TK, const Tensor& overflow,
                           RoutingHandle* handle, Arena& saved, Arena& work) {
  const int64_t T = idx_TK.dim(0);
  YM_CHECK_EQ(idx_TK.dim(1), top_k_);
  handle->idx = idx_TK;
  handle->offsets = saved.Allocate("ep/offsets", DType::kI64, {num_experts_ + 1});
  handle->slot = saved.Allocate("ep/slot", DType::kI64, {T, top_k_});
  handle->source = saved.Allocate("ep/source", DType::kI64, {window_rows(T)});
  PermutePlan(stream,
              {.idx = idx_TK,
               .expert_begin = 0,
               .offsets = handle->offsets,
               .slot = handle->slot,
               .source = handle->source},
              overflow, work);
}

void LocalDispatcher::Dispatch(const Stream& stream, const RoutingHandle& handle, const Tensor& x_TD,
                               const Tensor& w_TK, const Tensor& x_RD, const Tensor& w_R, Arena& /*work*/) {
  Permute(stream, {.x_TD = x_TD,
                   .w_TK = w_TK,
                   .source = handle.source,
                   .offsets = handle.offsets,
                   .x_RD = x_RD,
                   .w_R = w_R,
                   .top_k = top_k_,
                   .slot = handle.slot});
}

void LocalDispatcher::Combine(const Stream& stream, const RoutingHandle& handle, const Tensor& y_RD,
                              const Tensor& residual, const Tensor& addend, const Tensor& y_TD,
                              const Tensor& dw_R, const Tensor& dw_TK, Arena& /*work*/) {
  Unpermute(stream, {.y_RD = y_RD,
                     .slot = handle.slot,
                     .dw_R = dw_R,
                     .residual = residual,
                     .addend = addend,
                     .y_TD = y_TD,
                     .dw_TK = dw_TK});
}

}  // namespace yardmaster
