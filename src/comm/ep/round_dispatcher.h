// File: src/comm/ep/round_dispatcher.h
//
// The exact form of dispatch and combine, for a step whose load did not fit into a window: the host reads the
// counts, and rows cross in as many rounds over the local experts as the fixed window needs (rounds.h).
// Nothing is grown, nothing is dropped.
//   PlanRounds(idx) -> Pack(x, w) -> for each round: Send, experts, Return -> Unpack
// Rows wait in send order ([T * K, D]: by global expert, then by token), one for each pair. A row is sent in
// one round and its result comes back to its place in the same round, so one buffer serves both ways. Unpack
// adds as Combine of the expanded mode does: in ascending global expert id, rounded once.
#pragma once

#include "src/comm/ep/dispatcher.h"

namespace yardmaster {

class RoundDispatcher {
 public:
  virtual ~RoundDispatcher() = default;
  // As Dispatcher::Plan, without a limit and without the overflow flag; fills handle->rounds. Waits for the
  // counts.
  virtual void PlanRounds(const Stream& stream, const Tensor& idx_TK, RoutingHandle* handle, Arena& saved,
                          Arena& work) = 0;
  // The same on every rank of the group; at least 1 on the dry device.
  int64_t NumRounds(const RoutingHandle& handle) const;
  // x_TD -> rows in send order; w_TK -> w in send order when given.
  void Pack(const Stream& stream, const RoutingHandle& handle, const Tensor& x_TD, const Tensor& w_TK,
            const Tensor& x_sent, const Tensor& w_sent);
  // The rows (or weights) of a round from send order to the windows. Sets handle.offsets to those of the
  // round.
  virtual void Send(const Stream& stream, const RoutingHandle& handle, int64_t round, const Tensor& sent,
                    const Tensor& window) = 0;
  // And back.
  virtual void Return(const Stream& stream, const RoutingHandle& handle, int64_t round, const Tensor& window,
                      const Tensor& sent) = 0;
  // y_TD[t] = residual + addend + sum of t's rows; dw in send order -> dw_TK when given. As
  // Dispatcher::Combine.
  void Unpack(const Stream& stream, const RoutingHandle& handle, const Tensor& y_sent, const Tensor& residual,
              const Tensor& addend, const Tensor& y_TD, const Tensor& dw_sent, const Tensor& dw_TK);
};

}  // namespace yardmaster
