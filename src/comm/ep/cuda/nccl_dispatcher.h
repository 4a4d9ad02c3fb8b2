// File: src/comm/ep/cuda/nccl_dispatcher.h
//
// Expert parallelism on cuda devices without access to the peers' memory: rows travel by NCCL, between
// machines too. Expanded mode of mpi_dispatcher.h, whose window layout, order of additions and so bits it
// has: rows are packed in send order, cross in one message for each pair of ranks, and are moved to their
// places.
//
// - Segments (the default): each message holds a fixed number of rows, C = ceil(ragged_buffer_factor * T * K
// / n), at most
//   the worst case T * min(K, L), which a factor of -1 means. Counts stay on the GPUs and no host waits: a
//   step can be captured. What a message does not use crosses for nothing; a load that fills a segment
//   overflows as one that fills a window does, and `needed` tells n times the rows of the fullest segment
//   where that is more than the window's.
// - Exact counts: the host waits for the counts in Plan and messages hold the rows there are. Nothing crosses
// for
//   nothing, but each plan is a host round trip, and no graph is possible.
//
// An exact replay (round_dispatcher.h) always goes by exact counts. T must be the same on all ranks of the
// group.
#pragma once

#include <memory>
#include <vector>

#include "src/comm/ep/ep_plan.h"
#include "src/comm/ep/round_dispatcher.h"
#include "src/comm/nccl/nccl_communicator.h"

namespace yardmaster {

class NcclDispatcher : public Dispatcher, private RoundDispatcher {
 public:
  // `comm` is the EP group in the order of ep_index; null for the dry device. Throws ConfigError when ep does
  // not divide the experts, or for the deduplicated mode.
  NcclDispatcher(const EpOptions& options, bool exact_counts, NcclCommunicator* comm);

  int64_t window_rows(int64_t tokens) const override { return options_.window_rows(tokens); }
  int64_t segment_rows(int64_t tokens) const;  // C
  int64_t local_experts() const override { return options_.local_experts(); }
  int64_t expert_begin() const override { return options_.ep_index * options_.local_experts(); }

  void Plan(const Stream& stream, const Tensor& idx_TK, const Tensor& overflow, RoutingHandle* handle,
            Arena& saved, Arena& work) override;
  void Dispatch(const Stream& stream, const RoutingHandle& handle, const Tensor& x_TD, const Tensor& w_TK,
                const Tensor& x_RD, const Tensor& w_R, Arena& work) override;
  void Combine(const Stream& stream, const RoutingHandle& handle, const Tensor& y_RD, const Tensor& residual,
               const Tensor& addend, const Tensor& y_TD, const Tensor& dw_R, const Tensor& dw_TK,
               Arena& work) override;
  bool host_takes_part() const override { return exact_counts_; }
  RoundDispatcher* rounds() override { return options_.ragged_buffer_factor < 0 ? nullptr : this; }

 private:
  void PlanRounds(const Stream& stream, const Tensor& idx_TK, RoutingHandle* handle, Arena& saved,
                  Arena& work) override;
  void Send(const Stream& stream, const RoutingHandle& handle, int64_t round, const Tensor& sent,
            const Tensor& window) override;
  void Return(const Stream& stream, const RoutingHandle& handle, int64_t round, const Tensor& window,
              const Tensor& sent) override;
  void ExchangeRound(const Stream& stream, const RoutingHandle& handle, int64_t round, const Tensor& sent,
                     const Tensor& window, bool back, const char* what);

  // Send order, the counts of all ranks, and the places that follow from them for segments of `capacity`
  // rows; for rounds, slots stay those of the send order.
  void PlanSegments(const Stream& stream, const Tensor& idx_TK, int64_t capacity, bool rounds,
                    const Tensor& overflow, RoutingHandle* handle, Arena& saved, Arena& work);
  // The counts of all ranks on the host. Waits.
  void ReadCounts(const Stream& stream, RoutingHandle* handle) const;
  // Rows of the two buffers: n * C each; by exact counts those of a full batch and of a full window.
  int64_t SentRows(int64_t tokens) const;
  int64_t ReceivedRows(int64_t tokens) const;
  void ExchangeSegments(const Stream& stream, const RoutingHandle& handle, const Tensor& sent,
                        const Tensor& received, const Tensor& w_sent, const Tensor& w_received, bool back,
                        const char* what);

  EpOptions options_;
  bool exact_counts_;
  NcclCommunicator* comm_;
};

}  // namespace yardmaster
