// The exact replay of MpiDispatcher (round_dispatcher.h): the rows of every window in rounds.
#include <algorithm>

#include "src/base/check.h"
#include "src/comm/ep/mpi_dispatcher.h"

namespace yardmaster {
namespace {

// Rows [row, row + rows) of a contiguous tensor whose first axis counts rows.
MpiCommunicator::Transfer Rows(int peer, const Tensor& t, int64_t row, int64_t rows) {
  YM_CHECK(t.contiguous() && 0 <= row && 0 < rows && row + rows <= t.dim(0), "rows ", row, " + ",
           rows, " of ", t.shape());
  const int64_t row_bytes = t.bytes() / t.dim(0);
  return {peer, static_cast<char*>(t.data()) + row * row_bytes, rows * row_bytes};
}

}  // namespace

void MpiDispatcher::PlanRounds(const Stream& stream, const Tensor& idx_TK, RoutingHandle* handle,
                               Arena& saved, Arena& work) {
  const int64_t K = options_.top_k, n = options_.ep, E = options_.num_experts, L = local_experts();
  AllocatePlan(options_, idx_TK, K, E, handle, saved);
  {
    ArenaScope scope(work);
    const Tensor not_asked = work.Allocate("ep/overflow", DType::kI32, {1});
    PlanSendOrder(stream, not_asked, handle, work);
  }
  handle->rounds.assign(static_cast<size_t>(n), {});
  if (stream.dry()) return;
  const int64_t* counts = handle->counts.as<int64_t>();
  handle->rounds = RoundsOfGroup(counts, n, E, L);
}

void MpiDispatcher::Send(const Stream& stream, const RoutingHandle& handle, int64_t round,
                         const Tensor& sent, const Tensor& window) {
  if (stream.dry()) return;
  const std::vector<int64_t> offsets =
      OffsetsOfRound(handle.rounds[static_cast<size_t>(options_.ep_index)], round, expert_begin(),
                     local_experts());
  std::copy(offsets.begin(), offsets.end(), handle.offsets.as<int64_t>());
  ExchangeRound(handle, round, sent, window, false, "dispatch of a round");
}

void MpiDispatcher::Return(const Stream& stream, const RoutingHandle& handle, int64_t round,
                           const Tensor& window, const Tensor& sent) {
  if (!stream.dry()) ExchangeRound(handle, round, sent, window, true, "combine of a round");
}

void MpiDispatcher::ExchangeRound(const RoutingHandle& handle, int64_t round, const Tensor& sent,
                                  const Tensor& window, bool back, const char* what) {
  const int64_t n = options_.ep, E = options_.num_experts, me = options_.ep_index;
  const int64_t* counts = handle.counts.as<int64_t>();
  const int64_t* begins = handle.begins.as<int64_t>();
  // f(expert, first row among the source's rows for it, window row, rows) for what `source` sends
  // to `owner`.
  const auto for_blocks = [&](int64_t source, int64_t owner, auto&& f) {
    const std::vector<Round>& rounds = handle.rounds[static_cast<size_t>(owner)];
    if (round >= static_cast<int64_t>(rounds.size())) return;
    ForRowsOfRound(
        rounds[static_cast<size_t>(round)],
        [&](int64_t e) { return begins[source * E + e] - begins[e]; },
        [&](int64_t e) { return counts[source * (E + 2) + e]; }, f);
  };
  const int64_t* send_offsets = handle.send_offsets.as<int64_t>();
  std::vector<MpiCommunicator::Transfer> out, in;
  int64_t rows_in = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int q = static_cast<int>((me + i) % n), p = static_cast<int>((me + n - i) % n);
    for_blocks(me, q, [&](int64_t e, int64_t first, int64_t, int64_t rows) {
      out.push_back(Rows(q, sent, send_offsets[e] + first, rows));
    });
    for_blocks(p, me, [&](int64_t, int64_t, int64_t row, int64_t rows) {
      in.push_back(Rows(p, window, row, rows));
      rows_in += rows;
    });
  }
  YM_CHECK_EQ(rows_in, handle.offsets.as<int64_t>()[local_experts()], what,
              ": rows received and rows of the round, on ", Me());
  comm_->Exchange(back ? in : out, back ? out : in, what);
}

}  // namespace yardmaster
