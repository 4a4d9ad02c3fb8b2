// File: src/comm/ep/cuda/peer_kernels.h
//
// The kernels of dispatch and combine (kernels/ep) in terms of tensors, for PeerDispatcher. Arguments are checked there.
// All of them enqueue work and return; only the three that say so wait.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/ep/cuda/peer_table.h"
#include "src/comm/ep/ep_plan.h"

namespace yardmaster {

struct PeerOptions {
  // Thread blocks, each with a multiprocessor of its own, that communication may have; the rest is left to the GEMMs.
  // Ranks that share a GPU wait for each other: all their blocks must fit on it together.
  int num_sms = 24;
  double deadline_seconds = 60;  // of every wait for a peer
};

// Why a rank stopped talking to its peers: one of them did not come, or came to another operation.
struct PeerFailure {
  int rank = 0, peer = 0;
  int64_t expected = 0, seen = 0;
  std::string what;  // a sentence that names all of these
};

class PeerKernels {
 public:
  virtual ~PeerKernels() = default;

  // handle.counts, begins, offsets, needed. overflow: int32 [1]; rows_needed may be undefined.
  virtual void Counts(const Stream& stream, const RoutingHandle& handle, const Tensor& expert_starts, int64_t R,
                      const Tensor& overflow, const Tensor& rows_needed) = 0;
  virtual void ClampSlots(const Stream& stream, const RoutingHandle& handle) = 0;
  // rows int64 [T, K], ranks int32 [T, J] from slot, places in expert order.
  virtual void TokenRanks(const Stream& stream, const RoutingHandle& handle, const Tensor& expert_starts,
                          const Tensor& slot, const Tensor& rows, const Tensor& ranks) = 0;
  // handle.tokens, recv_offsets, recv_slot.
  virtual void Places(const Stream& stream, const RoutingHandle& handle, const Tensor& rows) = 0;

  virtual void Dispatch(const Stream& stream, const RoutingHandle& handle, const Tensor& x, const Tensor& w,
                        const Tensor& x_R, const Tensor& w_R) = 0;
  virtual void Combine(const Stream& stream, const RoutingHandle& handle, const Tensor& y_R, const Tensor& residual,
                       const Tensor& addend, const Tensor& y, const Tensor& dw_R, const Tensor& dw) = 0;
  virtual void SendTokens(const Stream& stream, const RoutingHandle& handle, const Tensor& x, const Tensor& w,
                          const Tensor& x_received, const Tensor& w_received) = 0;
  virtual void Replicate(const Stream& stream, const RoutingHandle& handle, const Tensor& x_received,
                         const Tensor& w_received, const Tensor& x_R, const Tensor& w_R) = 0;
  virtual void ReturnTokens(const Stream& stream, const RoutingHandle& handle, const Tensor& y_R, const Tensor& y_back,
                            const Tensor& dw_R, const Tensor& dw_back) = 0;
  virtual void SumTokens(const Stream& stream, const RoutingHandle& handle, const Tensor& y_back, const Tensor& residual,
                         const Tensor& addend, const Tensor& y, const Tensor& dw_back, const Tensor& dw) = 0;
  // Rows of handle.round_blocks [begin, end) from `sent` to the windows, or back.
  virtual void MoveRound(const Stream& stream, const RoutingHandle& handle, int64_t begin, int64_t end,
                         const Tensor& sent, const Tensor& window, bool back) = 0;

  // to = values, a few hundred at most, while peers may be waited for: what it enqueues needs no other stream.
  virtual void SetValues(const Stream& stream, const std::vector<int64_t>& values, const Tensor& to) = 0;

  // Waits for the stream.
  virtual std::vector<int64_t> ToHost(const Stream& stream, const Tensor& values) = 0;
  // `values` may be gone when it returns; may wait.
  virtual void FromHost(const Stream& stream, const std::vector<int64_t>& values, const Tensor& to) = 0;
  // Of an operation that is done; waits for the device.
  virtual std::optional<PeerFailure> Failure() = 0;
};

// Collective over the table's ranks; takes a region of the table. Throws ConfigError in a build without CUDA.
std::unique_ptr<PeerKernels> MakePeerKernels(const EpOptions& options, const PeerOptions& peer, PeerTable* table,
                                             Device* device);

}  // namespace yardmaster
