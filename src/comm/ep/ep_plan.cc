#include "src/comm/ep/ep_plan.h"

#include <algorithm>
#include <cmath>

#include "src/base/check.h"

namespace yardmaster {

int64_t EpOptions::window_rows(int64_t tokens) const {
  const int64_t T = std::max(tokens, least_tokens), K = top_k;
  const int64_t worst = ep * T * std::min(K, local_experts());
  if (ragged_buffer_factor < 0) return worst;
  // The balanced load is T * K rows, whatever the number of ranks.
  const double rows = std::ceil(ragged_buffer_factor * static_cast<double>(T) * static_cast<double>(K));
  return rows < static_cast<double>(worst) ? static_cast<int64_t>(rows) : worst;
}

int64_t EpOptions::tokens_received(int64_t tokens) const {
  return std::min(window_rows(tokens), ep * std::max(tokens, least_tokens));
}

std::string EpOptions::Me() const { return StrCat("rank ", ep_index, " of ", ep, " (expert-parallel)"); }

void CheckEpOptions(const EpOptions& options) {
  static_cast<void>(ExpertPlacement(options.num_experts, options.ep));
  YM_CHECK(options.top_k >= 1 && options.top_k <= options.num_experts, "top ", options.top_k, " of ",
           options.num_experts);
  YM_CHECK(options.ragged_buffer_factor == -1 || options.ragged_buffer_factor > 0, "factor ",
           options.ragged_buffer_factor);
  YM_CHECK(0 <= options.ep_index && options.ep_index < options.ep, options.ep_index, " of ", options.ep);
}

double ExpectedRanks(int64_t ep, int64_t num_experts, int64_t top_k, int64_t groups, int64_t kept) {
  YM_CHECK(ep >= 1 && num_experts % ep == 0 && 1 <= kept && kept <= groups && num_experts % groups == 0, ep, " ranks, ",
           num_experts, " experts, ", kept, " of ", groups, " groups");
  const int64_t E = num_experts / groups * kept, L = std::min(num_experts / ep, E);
  double missed = 1;  // C(E - L, K) / C(E, K): no choice falls on a given rank
  for (int64_t k = 0; k < top_k; ++k)
    missed *= std::max(0.0, static_cast<double>(E - L - k)) / static_cast<double>(std::max<int64_t>(E - k, 1));
  return static_cast<double>(E) / static_cast<double>(L) * (1 - missed);
}

DispatchMode ModeFor(int64_t ep, int64_t num_experts, int64_t top_k, int64_t groups, int64_t kept) {
  constexpr double kMemoryOverWire = 10;
  const double copies = ExpectedRanks(ep, num_experts, top_k, groups, kept);
  const double saved = (static_cast<double>(top_k) - copies) * static_cast<double>(ep - 1) / static_cast<double>(ep);
  return saved > 2 * copies / kMemoryOverWire ? DispatchMode::kDeduplicated : DispatchMode::kExpanded;
}

void AllocatePlan(const EpOptions& options, const Tensor& idx_TK, int64_t J, int64_t destinations, RoutingHandle* handle,
                  Arena& saved) {
  const int64_t T = idx_TK.dim(0), n = options.ep, E = options.num_experts;
  YM_CHECK_EQ(idx_TK.dim(1), options.top_k);
  handle->idx = idx_TK;
  handle->offsets = saved.Allocate("ep/offsets", DType::kI64, {options.local_experts() + 1});
  handle->needed = saved.Allocate("ep/needed", DType::kI64, {1});
  handle->counts = saved.Allocate("ep/counts", DType::kI64, {n, E + 2});
  handle->begins = saved.Allocate("ep/begins", DType::kI64, {n, E});
  handle->send_offsets = saved.Allocate("ep/send_offsets", DType::kI64, {destinations + 1});
  handle->send_source = saved.Allocate("ep/send_source", DType::kI64, {T * J});
  handle->send_slot = saved.Allocate("ep/send_slot", DType::kI64, {T, J});
}

}  // namespace yardmaster
