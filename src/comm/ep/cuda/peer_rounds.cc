// The exact replay of PeerDispatcher (round_dispatcher.h): the rows of every window in rounds. The host reads the counts.
#include <algorithm>

#include "src/base/check.h"
#include "src/base/error.h"
#include "src/comm/ep/cuda/peer_dispatcher.h"
#include "src/ops/permute.h"

namespace yardmaster {

void PeerDispatcher::PlanRounds(const Stream& stream, const Tensor& idx_TK, RoutingHandle* handle, Arena& saved,
                                Arena& work) {
  CheckStream(stream, "PlanRounds");
  const int64_t T = idx_TK.dim(0), K = options_.top_k, E = options_.num_experts;
  AllocatePlan(options_, idx_TK, K, E, handle, saved);
  handle->tokens = {};
  handle->round_blocks = saved.Allocate("ep/round_blocks", DType::kI64, {T * K, 4});
  handle->rounds.assign(static_cast<size_t>(options_.ep), {});
  handle->round_begins = {0};
  ArenaScope scope(work);
  const Tensor not_asked = work.Allocate("ep/overflow", DType::kI32, {1});
  PermutePlan(stream,
              {.idx = idx_TK,
               .expert_begin = 0,
               .offsets = handle->send_offsets,
               .slot = handle->send_slot,
               .source = handle->send_source},
              not_asked, work);
  if (stream.dry()) return;
  kernels_->Counts(stream, *handle, handle->send_offsets, window_rows(T), not_asked, rows_needed_);
  const std::vector<int64_t> counts = kernels_->ToHost(stream, handle->counts);
  if (const std::optional<PeerFailure> failure = kernels_->Failure()) {
    throw Error(ExitCode::kWatchdog, "exact replay: " + failure->what, options_.Me());
  }
  std::vector<int64_t> blocks;
  CutIntoRounds(handle, counts, &blocks);
  kernels_->FromHost(stream, blocks, handle->round_blocks);
}

// counts -> the rounds of all ranks, and what this rank sends in each.
void PeerDispatcher::CutIntoRounds(RoutingHandle* handle, const std::vector<int64_t>& counts,
                                   std::vector<int64_t>* blocks) const {
  const int64_t n = options_.ep, E = options_.num_experts, L = local_experts(), me = options_.ep_index;
  const auto count = [&](int64_t p, int64_t e) { return counts[static_cast<size_t>(p * (E + 2) + e)]; };
  std::vector<int64_t> send_offsets = {0};
  for (int64_t e = 0; e < E; ++e) send_offsets.push_back(send_offsets.back() + count(me, e));
  handle->rounds = RoundsOfGroup(counts.data(), n, E, L);
  for (int64_t round = 0; round < NumRounds(*handle); ++round) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t q = (me + i) % n;  // peers in a rotated order, so that not all ranks write to rank 0 first
      const std::vector<Round>& rounds = handle->rounds[static_cast<size_t>(q)];
      if (round >= static_cast<int64_t>(rounds.size())) continue;
      ForRowsOfRound(
          rounds[static_cast<size_t>(round)],
          [&](int64_t e) {
            int64_t first = 0;
            for (int64_t p = 0; p < me; ++p) first += count(p, e);
            return first;
          },
          [&](int64_t e) { return count(me, e); },
          [&](int64_t e, int64_t first, int64_t row, int64_t rows) {
            blocks->insert(blocks->end(), {q, send_offsets[static_cast<size_t>(e)] + first, row, rows});
          });
    }
    handle->round_begins.push_back(static_cast<int64_t>(blocks->size()) / 4);
  }
}

void PeerDispatcher::Send(const Stream& stream, const RoutingHandle& handle, int64_t round, const Tensor& sent,
                          const Tensor& window) {
  if (stream.dry()) return;
  const std::vector<int64_t> offsets =
      OffsetsOfRound(handle.rounds[static_cast<size_t>(options_.ep_index)], round, expert_begin(),
                     local_experts());
  kernels_->SetValues(stream, offsets, handle.offsets);
  MoveRound(stream, handle, round, sent, window, false);
}

void PeerDispatcher::Return(const Stream& stream, const RoutingHandle& handle, int64_t round, const Tensor& window,
                            const Tensor& sent) {
  if (!stream.dry()) MoveRound(stream, handle, round, sent, window, true);
}

void PeerDispatcher::MoveRound(const Stream& stream, const RoutingHandle& handle, int64_t round, const Tensor& sent,
                               const Tensor& window, bool back) {
  YM_CHECK(0 <= round && round + 1 < static_cast<int64_t>(handle.round_begins.size()), "round ", round, " of ",
           NumRounds(handle), " on ", options_.Me());
  YM_CHECK(sent.contiguous() && window.contiguous() && sent.dtype() == window.dtype() &&
               sent.shape().rank() == window.shape().rank(),
           "a round between ", sent.shape(), " and ", window.shape(), " on ", options_.Me());
  const auto i = static_cast<size_t>(round);
  kernels_->MoveRound(stream, handle, handle.round_begins[i], handle.round_begins[i + 1], sent, window, back);
}

}  // namespace yardmaster
