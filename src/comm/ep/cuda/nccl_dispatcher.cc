#include "src/comm/ep/cuda/nccl_dispatcher.h"

#include <algorithm>

#include "kernels/segments/segments.h"
#include "src/base/check.h"
#include "src/device/cuda/cuda_stream.h"
#include "src/ops/permute.h"

namespace yardmaster {
namespace {

using Transfer = NcclCommunicator::Transfer;

int64_t RowBytes(const Tensor& t) { return t.dim(0) ? t.bytes() / t.dim(0) : 0; }

// Rows [row, row + rows) of a contiguous tensor whose first axis counts rows; [R] has rows of one element.
Transfer Rows(int peer, const Tensor& t, int64_t row, int64_t rows) {
  YM_CHECK((t.contiguous() && 0 <= row && 0 <= rows && row + rows <= t.dim(0)) || rows == 0, "rows ", row,
           " + ", rows, " of ", t.shape());
  return {peer, static_cast<char*>(t.data()) + row * RowBytes(t), rows * RowBytes(t)};
}

// to[to_index[i]] = from[from_index[i] / divisor], for rows and, if there are any, weights.
void Move(const Stream& stream, const char* what, const Tensor& from, const Tensor& from_index,
          int64_t divisor, const Tensor& to, const Tensor& to_index, const int64_t* num_rows, int64_t most,
          const Tensor& w_from, const Tensor& w_to) {
  YM_CUDA_CHECK(
      stream, what,
      MoveRows({.from = from.data(),
                .to = to.data(),
                .row_bytes = RowBytes(from),
                .from_index = from_index.defined() ? from_index.as<int64_t>() : nullptr,
                .from_divisor = divisor,
                .to_index = to_index.defined() ? to_index.as<int64_t>() : nullptr,
                .num_rows = num_rows,
                .most = most,
                .w_from = w_from.data(),
                .w_to = w_to.data(),
                .weight_bytes = w_from.defined() ? static_cast<int>(DTypeBytes(w_from.dtype())) : 0},
               CudaStream(stream)));
}

}  // namespace

NcclDispatcher::NcclDispatcher(const EpOptions& options, bool exact_counts, NcclCommunicator* comm)
    : options_(options), exact_counts_(exact_counts), comm_(comm) {
  CheckEpOptions(options);
  if (!options.expanded())
    throw ConfigError("rows that travel by NCCL cross once for each (token, expert)", "ep.mode",
                      "set ep.mode to expanded, or ep.transport to peer");
  if (comm_ != nullptr) {
    YM_CHECK_EQ(comm_->size(), options.ep, comm_->name());
    YM_CHECK_EQ(comm_->rank(), options.ep_index, comm_->name());
  }
}

// Of the balanced load T * K, each of the n ranks gets as many rows.
int64_t NcclDispatcher::segment_rows(int64_t tokens) const {
  const int64_t worst = tokens * std::min(options_.top_k, local_experts());
  return std::min(worst, (window_rows(tokens) + options_.ep - 1) / options_.ep);
}

int64_t NcclDispatcher::SentRows(int64_t tokens) const {
  return exact_counts_ ? tokens * options_.top_k : options_.ep * segment_rows(tokens);
}

int64_t NcclDispatcher::ReceivedRows(int64_t tokens) const {
  return exact_counts_ ? window_rows(tokens) : options_.ep * segment_rows(tokens);
}

// ---- plan

void NcclDispatcher::Plan(const Stream& stream, const Tensor& idx_TK, const Tensor& overflow,
                          RoutingHandle* handle, Arena& saved, Arena& work) {
  PlanSegments(stream, idx_TK, exact_counts_ ? 0 : segment_rows(idx_TK.dim(0)), /*rounds=*/false, overflow,
               handle, saved, work);
  if (exact_counts_) ReadCounts(stream, handle);
}

void NcclDispatcher::PlanSegments(const Stream& stream, const Tensor& idx_TK, int64_t capacity, bool rounds,
                                  const Tensor& overflow, RoutingHandle* handle, Arena& saved, Arena& work) {
  const int64_t T = idx_TK.dim(0), K = options_.top_k, n = options_.ep, E = options_.num_experts,
                L = local_experts(), R = window_rows(T);
  AllocatePlan(options_, idx_TK, K, E, handle, saved);
  handle->send_place = saved.Allocate("ep/send_place", DType::kI64, {T * K});
  handle->recv_place = saved.Allocate("ep/recv_place", DType::kI64, {R});
  ArenaScope scope(work);
  const Tensor recv_first = work.Allocate("ep/recv_first", DType::kI64, {n, L});
  const Tensor recv_begin = work.Allocate("ep/recv_begin", DType::kI64, {n + 1});
  PermutePlan(stream,
              {.idx = idx_TK,
               .expert_begin = 0,
               .offsets = handle->send_offsets,
               .slot = handle->send_slot,
               .source = handle->send_source},
              overflow, work);
  if (stream.dry()) return;
  YM_CHECK(comm_ != nullptr, "dispatch without a group, on ", options_.Me());
  const SegmentPlan plan{
      .ranks = n,
      .experts = E,
      .local_experts = L,
      .me = options_.ep_index,
      .tokens = T,
      .window = R,
      .top_k = K,
      .capacity = capacity,
      .needs_segments = !exact_counts_,
      .counts = handle->counts.as<int64_t>(),
      .send_offsets = handle->send_offsets.as<int64_t>(),
      .send_source = handle->send_source.as<int64_t>(),
      .begins = handle->begins.as<int64_t>(),
      .offsets = handle->offsets.as<int64_t>(),
      .needed = handle->needed.as<int64_t>(),
      .most_needed = rows_needed_.defined() ? rows_needed_.as<int64_t>() : nullptr,
      .overflow = overflow.as<int32_t>(),
      .recv_first = recv_first.as<int64_t>(),
      .recv_begin = recv_begin.as<int64_t>(),
      .send_slot = handle->send_slot.as<int64_t>(),
      .send_place = handle->send_place.as<int64_t>(),
      .recv_place = handle->recv_place.as<int64_t>(),
  };
  YM_CUDA_CHECK(stream, "Plan", CountSegments(plan, CudaStream(stream)));
  std::vector<int64_t> bounds;
  for (int64_t p = 0; p <= n; ++p) bounds.push_back(p * (E + 2));
  comm_->AllGather(stream, handle->counts, bounds);
  YM_CUDA_CHECK(stream, "Plan", PlaceWindows(plan, CudaStream(stream)));
  if (!rounds) YM_CUDA_CHECK(stream, "Plan", PlaceRows(plan, CudaStream(stream)));
}

void NcclDispatcher::ReadCounts(const Stream& stream, RoutingHandle* handle) const {
  const int64_t n = options_.ep, E = options_.num_experts;
  handle->host_counts.assign(static_cast<size_t>(n * (E + 2)), 0);
  if (stream.dry()) return;
  stream.device().CopyToHost(handle->host_counts.data(), handle->counts.data(),
                             static_cast<size_t>(handle->counts.bytes()));
  const int64_t* counts = handle->host_counts.data();
  for (int64_t p = 0; p < n; ++p) {
    int64_t sum = 0;
    for (int64_t e = 0; e < E; ++e) sum += counts[p * (E + 2) + e];
    YM_CHECK_LE(sum, counts[p * (E + 2) + E] * options_.top_k, "pairs counted and T * K of rank ", p,
                ", seen by ", options_.Me());
  }
}

// ---- dispatch: x_TD -> x_RD. Adjoint, a combine

void NcclDispatcher::ExchangeSegments(const Stream& stream, const RoutingHandle& handle, const Tensor& sent,
                                      const Tensor& received, const Tensor& w_sent, const Tensor& w_received,
                                      bool back, const char* what) {
  const int64_t n = options_.ep, E = options_.num_experts, L = local_experts(), me = options_.ep_index;
  const int64_t C = segment_rows(handle.idx.dim(0));
  // Rows of p for q.
  const auto rows_of = [&](int64_t p, int64_t q) {
    int64_t rows = 0;
    for (int64_t e = q * L; e < (q + 1) * L; ++e)
      rows += handle.host_counts[static_cast<size_t>(p * (E + 2) + e)];
    return rows;
  };
  std::vector<int64_t> send_begin{0}, recv_begin{0};
  for (int64_t r = 0; r < n; ++r) {
    send_begin.push_back(send_begin.back() + (exact_counts_ ? rows_of(me, r) : C));
    recv_begin.push_back(recv_begin.back() + (exact_counts_ ? rows_of(r, me) : C));
  }
  if (exact_counts_) {
    for (int64_t q = 0; q < n; ++q) {  // a window of the group is too small: the step will be computed again
      int64_t rows = 0;
      for (int64_t p = 0; p < n; ++p) rows += rows_of(p, q);
      if (rows > handle.host_counts[static_cast<size_t>(q * (E + 2) + E + 1)]) return;
    }
  }
  std::vector<Transfer> out, in;
  for (int64_t i = 0; i < n; ++i) {
    const int q = static_cast<int>((me + i) % n), p = static_cast<int>((me + n - i) % n);
    const auto add = [&](const Tensor& s, const Tensor& r) {
      out.push_back(Rows(q, s, send_begin[q], send_begin[q + 1] - send_begin[q]));
      in.push_back(Rows(p, r, recv_begin[p], recv_begin[p + 1] - recv_begin[p]));
    };
    add(sent, received);
    if (w_sent.defined()) add(w_sent, w_received);
  }
  comm_->Exchange(stream, back ? in : out, back ? out : in, what);
}

void NcclDispatcher::Dispatch(const Stream& stream, const RoutingHandle& handle, const Tensor& x_TD,
                              const Tensor& w_TK, const Tensor& x_RD, const Tensor& w_R, Arena& work) {
  const int64_t T = handle.idx.dim(0), K = options_.top_k, D = x_TD.cols(), R = window_rows(T);
  YM_CHECK(x_TD.dim(0) == T && x_RD.dim(0) == R && x_RD.cols() == D && x_RD.dtype() == x_TD.dtype(),
           "dispatch of ", x_TD.shape(), " to ", x_RD.shape(), " on ", options_.Me());
  YM_CHECK_EQ(w_TK.defined(), w_R.defined(), "weights go in if and only if they come out");
  const bool weights = w_TK.defined();
  ArenaScope scope(work);
  const Tensor sent = work.Allocate("ep/x_sent", x_TD.dtype(), {SentRows(T), D});
  const Tensor received = work.Allocate("ep/x_received", x_TD.dtype(), {ReceivedRows(T), D});
  const Tensor w_sent = weights ? work.Allocate("ep/w_sent", w_TK.dtype(), {SentRows(T)}) : Tensor();
  const Tensor w_received =
      weights ? work.Allocate("ep/w_received", w_TK.dtype(), {ReceivedRows(T)}) : Tensor();
  if (stream.dry()) return;
  Move(stream, "Dispatch", x_TD, handle.send_source, K, sent, handle.send_place,
       handle.send_offsets.as<int64_t>() + options_.num_experts, T * K, w_TK, w_sent);
  ExchangeSegments(stream, handle, sent, received, w_sent, w_received, false, "dispatch");
  Move(stream, "Dispatch", received, handle.recv_place, 1, x_RD, {},
       handle.offsets.as<int64_t>() + local_experts(), R, w_received, w_R);
}

void NcclDispatcher::Combine(const Stream& stream, const RoutingHandle& handle, const Tensor& y_RD,
                             const Tensor& residual, const Tensor& addend, const Tensor& y_TD,
                             const Tensor& dw_R, const Tensor& dw_TK, Arena& work) {
  const int64_t T = handle.idx.dim(0), D = y_TD.cols(), R = window_rows(T);
  YM_CHECK(y_TD.dim(0) == T && y_RD.dim(0) == R && y_RD.cols() == D && y_RD.dtype() == y_TD.dtype(),
           "combine of ", y_RD.shape(), " to ", y_TD.shape(), " on ", options_.Me());
  YM_CHECK_EQ(dw_R.defined(), dw_TK.defined(), "weight gradients go in if and only if they come out");
  const bool weights = dw_R.defined();
  ArenaScope scope(work);
  const Tensor sent = work.Allocate("ep/y_back", y_RD.dtype(), {SentRows(T), D});
  const Tensor received = work.Allocate("ep/y_returned", y_RD.dtype(), {ReceivedRows(T), D});
  const Tensor dw_sent = weights ? work.Allocate("ep/dw_back", dw_R.dtype(), {SentRows(T)}) : Tensor();
  const Tensor dw_received =
      weights ? work.Allocate("ep/dw_returned", dw_R.dtype(), {ReceivedRows(T)}) : Tensor();
  if (!stream.dry()) {
    Move(stream, "Combine", y_RD, {}, 1, received, handle.recv_place,
         handle.offsets.as<int64_t>() + local_experts(), R, dw_R, dw_received);
    ExchangeSegments(stream, handle, sent, received, dw_sent, dw_received, true, "combine");
  }
  Unpack(stream, handle, sent, residual, addend, y_TD, dw_sent, dw_TK);
}

// ---- exact replay (round_dispatcher.h): the rows of every window in rounds, by the counts that the host has
// read

void NcclDispatcher::PlanRounds(const Stream& stream, const Tensor& idx_TK, RoutingHandle* handle,
                                Arena& saved, Arena& work) {
  const int64_t n = options_.ep, E = options_.num_experts, L = local_experts();
  {
    ArenaScope scope(work);
    const Tensor not_asked = work.Allocate("ep/overflow", DType::kI32, {1});
    PlanSegments(stream, idx_TK, 0, /*rounds=*/true, not_asked, handle, saved, work);
  }
  ReadCounts(stream, handle);
  handle->rounds.assign(static_cast<size_t>(n), {});
  if (stream.dry()) return;
  const int64_t* counts = handle->host_counts.data();
  handle->rounds = RoundsOfGroup(counts, n, E, L);
}

void NcclDispatcher::Send(const Stream& stream, const RoutingHandle& handle, int64_t round,
                          const Tensor& sent, const Tensor& window) {
  if (stream.dry()) return;
  const std::vector<int64_t> offsets =
      OffsetsOfRound(handle.rounds[static_cast<size_t>(options_.ep_index)], round, expert_begin(),
                     local_experts());
  stream.device().CopyFromHost(handle.offsets.data(), offsets.data(), offsets.size() * sizeof(int64_t));
  ExchangeRound(stream, handle, round, sent, window, false, "dispatch of a round");
}

void NcclDispatcher::Return(const Stream& stream, const RoutingHandle& handle, int64_t round,
                            const Tensor& window, const Tensor& sent) {
  if (!stream.dry()) ExchangeRound(stream, handle, round, sent, window, true, "combine of a round");
}

void NcclDispatcher::ExchangeRound(const Stream& stream, const RoutingHandle& handle, int64_t round,
                                   const Tensor& sent, const Tensor& window, bool back, const char* what) {
  const int64_t n = options_.ep, E = options_.num_experts, me = options_.ep_index;
  const int64_t* counts = handle.host_counts.data();
  const auto for_blocks = [&](int64_t source, int64_t owner, auto&& f) {
    const std::vector<Round>& rounds = handle.rounds[static_cast<size_t>(owner)];
    if (round >= static_cast<int64_t>(rounds.size())) return;
    ForRowsOfRound(
        rounds[static_cast<size_t>(round)],
        [&](int64_t e) {
          int64_t before = 0;
          for (int64_t p = 0; p < source; ++p) before += counts[p * (E + 2) + e];
          return before;
        },
        [&](int64_t e) { return counts[source * (E + 2) + e]; }, f);
  };
  std::vector<int64_t> send_offsets{0};
  for (int64_t e = 0; e < E; ++e) send_offsets.push_back(send_offsets.back() + counts[me * (E + 2) + e]);
  std::vector<Transfer> out, in;
  for (int64_t i = 0; i < n; ++i) {
    const int q = static_cast<int>((me + i) % n), p = static_cast<int>((me + n - i) % n);
    for_blocks(me, q, [&](int64_t e, int64_t first, int64_t, int64_t rows) {
      out.push_back(Rows(q, sent, send_offsets[static_cast<size_t>(e)] + first, rows));
    });
    for_blocks(p, me, [&](int64_t, int64_t, int64_t row, int64_t rows) {
      in.push_back(Rows(p, window, row, rows));
    });
  }
  comm_->Exchange(stream, back ? in : out, back ? out : in, what);
}

}  // namespace yardmaster
