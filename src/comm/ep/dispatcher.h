// File: src/comm/ep/dispatcher.h
//
// Expert parallelism: rows travel to the ranks that own their experts, and back. Dispatch and combine are
// each other's backward and share one handle, which carries the routing of one micro-batch in one layer:
//   forward:   Plan(idx) -> Dispatch(x, w) -> experts -> Combine(y)
//   backward:  Dispatch(dy)               -> experts -> Combine(dx, dw)
// All results are in device memory; the host reads none. Buffers have fixed sizes (window_rows()); a load
// that does not fit sets the sticky overflow flag and is replayed (design: dropless, provably). One rank is a
// world of one: LocalDispatcher (local_dispatcher.h) permutes.
#pragma once

#include <vector>

#include "src/comm/ep/rounds.h"
#include "src/device/arena.h"
#include "src/device/device.h"

namespace yardmaster {

struct RoutingHandle {
  Tensor idx;      // int32 [T, K], ascending expert ids; -1: a pair that is not computed
  Tensor offsets;  // int64 [L + 1]: local expert l owns rows [offsets[l], offsets[l + 1]) of the window
  Tensor slot;     // int64 [T, K]: row of each local pair in this rank's window, -1 elsewhere
  Tensor source;   // int64 [R]: pair t * K + k of each row that came from this rank

  // Of dispatchers over several ranks (mpi_dispatcher.h says more); they leave `slot` undefined.
  Tensor needed;  // int64 [1]: rows that the fullest window of the group would have taken; over R: overflow
  Tensor counts;  // int64 [n, E + 2]: pairs that each rank sends to each expert, then its T and its R
  Tensor begins;  // int64 [n, E]: row in the owner's window of the first pair of that rank for that expert
  Tensor send_offsets;  // int64: rows sent to each expert (E + 1, expanded) or to each rank (n + 1,
                        // deduplicated)
  Tensor send_source;   // int64 [T * J]: t * J + j of each row sent; J = K, or min(K, n) when deduplicated
  Tensor send_slot;     // int64 [T, J]: row sent, -1: none
  Tensor recv_offsets;  // int64 [n + 1]: tokens received from each rank; deduplicated only
  Tensor recv_slot;     // int64 [N, K]: window row of each choice of a received token, -1: not here;
                        // deduplicated only
  Tensor tokens;        // int64 [n, n]: tokens that each rank sends to each; deduplicated over peer memory only

  // Of messages between ranks of cuda devices (cuda/nccl_dispatcher.h).
  Tensor send_place;  // int64 [T * K]: row of the send buffer of each row in send order, -1: does not fit
  Tensor recv_place;  // int64 [R]: row of the receive buffer of each row of the window, -1: did not fit
  std::vector<int64_t> host_counts;  // `counts` on the host, where the host has read them

  // Of an exact replay (round_dispatcher.h), on the host: the rounds of each rank of the group.
  std::vector<std::vector<Round>> rounds;
  // Over peer memory only: int64 [T * K, 4] {owner, first row in send order, window row, rows} of what this rank sends, by
  // round, and where each round's part begins.
  Tensor round_blocks;
  std::vector<int64_t> round_begins;
};

class RoundDispatcher;

class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  virtual int64_t window_rows(int64_t tokens) const = 0;  // R for T tokens a rank
  virtual int64_t local_experts() const = 0;              // L
  virtual int64_t expert_begin() const = 0;

  // Allocates the handle's tensors from `saved` and fills them from idx_TK. overflow: int32 [1], sticky.
  virtual void Plan(const Stream& stream, const Tensor& idx_TK, const Tensor& overflow, RoutingHandle* handle,
                    Arena& saved, Arena& work) = 0;
  // x_TD -> x_RD; w_TK -> w_R when given. Rows beyond offsets[L] stay as they are.
  virtual void Dispatch(const Stream& stream, const RoutingHandle& handle, const Tensor& x_TD,
                        const Tensor& w_TK, const Tensor& x_RD, const Tensor& w_R, Arena& work) = 0;
  // y_TD[t] = residual + addend + sum over the chosen experts in ascending id of their row, in the
  // accumulator type, rounded once; dw_R -> dw_TK when given. residual, addend may be undefined.
  virtual void Combine(const Stream& stream, const RoutingHandle& handle, const Tensor& y_RD,
                       const Tensor& residual, const Tensor& addend, const Tensor& y_TD, const Tensor& dw_R,
                       const Tensor& dw_TK, Arena& work) = 0;

  // How a load that did not fit is computed after all; null where every load fits.
  virtual RoundDispatcher* rounds() { return nullptr; }
  // That dispatch and combine take while they run; 0: not known.
  virtual int multiprocessors() const { return 0; }
  // Whether the host reads counts in Plan, so that a step cannot be recorded.
  virtual bool host_takes_part() const { return false; }
  // Throws Error(kWatchdog) that names the rank for which this one has waited in vain, if it has. Waits for the device.
  virtual void ThrowIfFailed() const {}
  // int64 [1] in device memory: plans raise it to the rows that the fullest window of their group would have
  // taken. Undefined: not kept. Dispatchers whose windows hold every load leave it alone.
  void set_rows_needed(const Tensor& rows_needed) { rows_needed_ = rows_needed; }

 protected:
  Tensor rows_needed_;
};

}  // namespace yardmaster
