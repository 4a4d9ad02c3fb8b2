// File: src/comm/ep/cuda/peer_dispatcher.h
//
// Expert parallelism over peer memory, on the cuda device: rows are written straight into the windows of the ranks that
// own their experts, and read from there. Places, sums and handles are those of MpiDispatcher (mpi_dispatcher.h), bit
// for bit, in both modes; the host sees no count. kernels/ep/group.h says how ranks meet.
//
// What peers write or read must be in peer memory (PeerMemory of peer_table.h): the arenas `saved`, which holds windows
// and plans, and, deduplicated, `work`. Its addresses may differ from rank to rank.
// All ranks of a group make the same calls in the same order, one at a time: on one stream, or on streams that wait for
// each other. `num_sms` thread blocks serve a call.
//
// A peer that does not come within the deadline is a failure: it sets the overflow flag of the last plan, so that the
// step changes nothing, calls become no-ops, and Failure() names the peer. A rank that failed is not repaired.
#pragma once

#include <memory>
#include <optional>

#include "src/comm/ep/cuda/peer_kernels.h"
#include "src/comm/ep/cuda/peer_table.h"
#include "src/comm/ep/ep_plan.h"
#include "src/comm/ep/round_dispatcher.h"

namespace yardmaster {

class PeerDispatcher : public Dispatcher, private RoundDispatcher {
 public:
  // Collective over the ranks of `table`, in the order of ep_index. For the dry device: table and device null. Throws
  // ConfigError when ep does not divide the experts, and in a build without CUDA.
  PeerDispatcher(const EpOptions& options, const PeerOptions& peer, PeerTable* table, Device* device);

  int64_t window_rows(int64_t tokens) const override { return options_.window_rows(tokens); }
  int64_t local_experts() const override { return options_.local_experts(); }
  int64_t expert_begin() const override { return options_.ep_index * options_.local_experts(); }

  void Plan(const Stream& stream, const Tensor& idx_TK, const Tensor& overflow, RoutingHandle* handle, Arena& saved,
            Arena& work) override;
  void Dispatch(const Stream& stream, const RoutingHandle& handle, const Tensor& x_TD, const Tensor& w_TK,
                const Tensor& x_RD, const Tensor& w_R, Arena& work) override;
  void Combine(const Stream& stream, const RoutingHandle& handle, const Tensor& y_RD, const Tensor& residual,
               const Tensor& addend, const Tensor& y_TD, const Tensor& dw_R, const Tensor& dw_TK, Arena& work) override;
  int multiprocessors() const override { return num_sms_; }
  RoundDispatcher* rounds() override { return options_.ragged_buffer_factor < 0 ? nullptr : this; }

  // The first failure of this rank among the calls that are done. Waits for the device.
  std::optional<PeerFailure> Failure() const;
  void ThrowIfFailed() const override;

 private:
  void PlanRounds(const Stream& stream, const Tensor& idx_TK, RoutingHandle* handle, Arena& saved, Arena& work) override;
  void Send(const Stream& stream, const RoutingHandle& handle, int64_t round, const Tensor& sent,
            const Tensor& window) override;
  void Return(const Stream& stream, const RoutingHandle& handle, int64_t round, const Tensor& window,
              const Tensor& sent) override;

  void CheckStream(const Stream& stream, const char* op) const;
  void CutIntoRounds(RoutingHandle* handle, const std::vector<int64_t>& counts, std::vector<int64_t>* blocks) const;
  void MoveRound(const Stream& stream, const RoutingHandle& handle, int64_t round, const Tensor& sent,
                 const Tensor& window, bool back);

  EpOptions options_;
  int num_sms_;
  std::unique_ptr<PeerKernels> kernels_;  // null: dry
};

}  // namespace yardmaster
