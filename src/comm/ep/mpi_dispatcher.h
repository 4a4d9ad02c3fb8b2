// File: src/comm/ep/mpi_dispatcher.h
//
// Expert parallelism over MPI, on the cpu device: what the CUDA kernels do, in plain loops and
// messages.
//
// A window row's place follows from the counts alone. All ranks of the group exchange how many
// pairs each sends to each expert (int64 [n, E]); prefix sums give the first row of every (expert,
// source rank) block. Rows are expert-major; within an expert by source rank ascending, then token
// ascending. Both ends compute the same places, so rows travel without headers.
//
// - Expanded: one row crosses for each (token, expert), and is received in place. Combine: the
//   source adds a token's rows in ascending global expert id in the accumulator type and rounds
//   once: the bits of LocalDispatcher on the same routing.
// - Deduplicated: a token crosses once for each rank that has any of its experts, and is copied to
//   their rows on arrival. Combine: that rank adds its experts' rows in ascending id and rounds to
//   the tensor's type, the source adds the ranks in ascending order and rounds.
//
// Windows are fixed: R = ceil(ragged_buffer_factor * T * K), at most the worst case
// n * T * min(K, L), which a factor of -1 means. If any window of the group is too small, the
// overflow flag is set on all its ranks; rows beyond a window are neither sent nor written, offsets
// are clamped, combine counts them as zero; nothing else happens. The step is to be replayed, in
// rounds (round_dispatcher.h; mpi_rounds.cc). Rounds use the expanded exchange in either mode: a
// step of the deduplicated mode that is replayed adds in another order than one that fitted.
//
// Always checked, in int64: each rank's counts sum to its T * K; rows sent and received are what
// the counts say.
#pragma once

#include "src/comm/ep/ep_plan.h"
#include "src/comm/ep/round_dispatcher.h"
#include "src/comm/mpi/mpi_communicator.h"
#include "src/parallel/expert_placement.h"

namespace yardmaster {

using MpiDispatcherOptions = EpOptions;

class MpiDispatcher : public Dispatcher, private RoundDispatcher {
 public:
  // `comm` is the EP group in the order of ep_index; it may be null for the dry device. Throws
  // ConfigError when ep does not divide the experts.
  MpiDispatcher(const MpiDispatcherOptions& options, MpiCommunicator* comm);

  int64_t window_rows(int64_t tokens) const override { return options_.window_rows(tokens); }
  int64_t local_experts() const override { return placement_.local_experts(); }
  int64_t expert_begin() const override { return placement_.Begin(options_.ep_index); }

  void Plan(const Stream& stream, const Tensor& idx_TK, const Tensor& overflow,
            RoutingHandle* handle, Arena& saved, Arena& work) override;
  void Dispatch(const Stream& stream, const RoutingHandle& handle, const Tensor& x_TD,
                const Tensor& w_TK, const Tensor& x_RD, const Tensor& w_R, Arena& work) override;
  void Combine(const Stream& stream, const RoutingHandle& handle, const Tensor& y_RD,
               const Tensor& residual, const Tensor& addend, const Tensor& y_TD, const Tensor& dw_R,
               const Tensor& dw_TK, Arena& work) override;
  RoundDispatcher* rounds() override { return options_.ragged_buffer_factor < 0 ? nullptr : this; }

 private:
  void PlanRounds(const Stream& stream, const Tensor& idx_TK, RoutingHandle* handle, Arena& saved,
                  Arena& work) override;
  void Send(const Stream& stream, const RoutingHandle& handle, int64_t round, const Tensor& sent,
            const Tensor& window) override;
  void Return(const Stream& stream, const RoutingHandle& handle, int64_t round,
              const Tensor& window, const Tensor& sent) override;
  void ExchangeRound(const RoutingHandle& handle, int64_t round, const Tensor& sent,
                     const Tensor& window, bool back, const char* what);

  // Rows of source rank p for expert e that are inside its owner's window: `rows` rows from `row`
  // on.
  struct Block {
    int64_t row = 0, rows = 0;
  };
  Block BlockOf(const RoutingHandle& handle, int64_t p, int64_t e) const;
  bool Expanded() const { return options_.expanded(); }
  int64_t J() const { return options_.rows_per_token(); }
  int64_t TokensReceived(const RoutingHandle& handle, const Stream& stream) const;
  std::string Me() const { return options_.Me(); }

  void ExchangeCounts(const Stream& stream, int64_t T, int64_t R, RoutingHandle* handle);
  void PlaceWindows(const RoutingHandle& handle, const Tensor& overflow) const;
  // Rows by global expert, the counts of all ranks, and their places.
  void PlanSendOrder(const Stream& stream, const Tensor& overflow, RoutingHandle* handle,
                     Arena& work);
  void PlanExpanded(const Stream& stream, const Tensor& overflow, RoutingHandle* handle,
                    Arena& work);
  void PlanDeduplicated(const Stream& stream, const Tensor& overflow, RoutingHandle* handle,
                        Arena& work);

  // Rows of `sent` (in send order) to the windows, or back.
  void ExchangeWindow(const RoutingHandle& handle, const Tensor& sent, const Tensor& window,
                      bool back, const char* what);
  // Rows of `sent` to the received tokens, or back.
  void ExchangeTokens(const RoutingHandle& handle, const Tensor& sent, const Tensor& received,
                      bool back, const char* what);

  MpiDispatcherOptions options_;
  ExpertPlacement placement_;
  MpiCommunicator* comm_;
};

}  // namespace yardmaster
