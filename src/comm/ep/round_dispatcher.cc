#include "src/comm/ep/round_dispatcher.h"

#include <algorithm>

#include "src/ops/permute.h"

namespace yardmaster {

int64_t RoundDispatcher::NumRounds(const RoutingHandle& handle) const {
  size_t most = 1;  // one round of nothing where no rank has a token: gradients are still written
  for (const std::vector<Round>& rounds : handle.rounds) most = std::max(most, rounds.size());
  return static_cast<int64_t>(most);
}

void RoundDispatcher::Pack(const Stream& stream, const RoutingHandle& handle, const Tensor& x_TD,
                           const Tensor& w_TK, const Tensor& x_sent, const Tensor& w_sent) {
  Permute(stream, {.x_TD = x_TD,
                   .w_TK = w_TK,
                   .source = handle.send_source,
                   .offsets = handle.send_offsets,
                   .x_RD = x_sent,
                   .w_R = w_sent,
                   .top_k = handle.idx.dim(1),
                   .slot = handle.send_slot});
}

void RoundDispatcher::Unpack(const Stream& stream, const RoutingHandle& handle, const Tensor& y_sent,
                             const Tensor& residual, const Tensor& addend, const Tensor& y_TD,
                             const Tensor& dw_sent, const Tensor& dw_TK) {
  Unpermute(stream, {.y_RD = y_sent,
                     .slot = handle.send_slot,
                     .dw_R = dw_sent,
                     .residual = residual,
                     .addend = addend,
                     .y_TD = y_TD,
                     .dw_TK = dw_TK});
}

}  // namespace yardmaster
