#include "src/comm/ep/mpi_dispatcher.h"

#include <algorithm>
#include <cstring>

#include "src/base/check.h"
#include "src/ops/permute.h"

namespace yardmaster {
namespace {

using Transfer = MpiCommunicator::Transfer;

// Rows [row, row + rows) of a contiguous tensor whose first axis counts rows; [R] has rows of one
// element.
Transfer Rows(int peer, const Tensor& t, int64_t row, int64_t rows) {
  const int64_t row_bytes = t.dim(0) ? t.bytes() / t.dim(0) : 0;
  YM_CHECK(t.contiguous() || rows == 0, "rows of a strided tensor ", t.shape());
  YM_CHECK(0 <= row && 0 <= rows && row + rows <= t.dim(0), "rows ", row, " + ", rows, " of ",
           t.shape());
  return {peer, static_cast<char*>(t.data()) + row * row_bytes, rows * row_bytes};
}

}  // namespace

MpiDispatcher::MpiDispatcher(const MpiDispatcherOptions& options, MpiCommunicator* comm)
    : options_(options), placement_(options.num_experts, options.ep), comm_(comm) {
  CheckEpOptions(options);
  if (comm_ != nullptr) {
    YM_CHECK_EQ(comm_->size(), options.ep, comm_->name());
    YM_CHECK_EQ(comm_->rank(), options.ep_index, comm_->name());
  }
}

MpiDispatcher::Block MpiDispatcher::BlockOf(const RoutingHandle& handle, int64_t p,
                                            int64_t e) const {
  const int64_t E = options_.num_experts;
  const int64_t* counts = handle.counts.as<int64_t>();
  const int64_t window = counts[placement_.OwnerOf(e) * (E + 2) + E + 1];
  const int64_t row = handle.begins.as<int64_t>()[p * E + e];
  return {row, std::clamp<int64_t>(window - row, 0, counts[p * (E + 2) + e])};
}

void MpiDispatcher::Plan(const Stream& stream, const Tensor& idx_TK, const Tensor& overflow,
                         RoutingHandle* handle, Arena& saved, Arena& work) {
  const int64_t T = idx_TK.dim(0), K = options_.top_k, n = options_.ep, E = options_.num_experts;
  YM_CHECK(stream.dry() || (stream.kind() == DeviceKind::kCpu && comm_ != nullptr),
           "MPI dispatch is for the cpu device");
  const int64_t R = window_rows(T);
  AllocatePlan(options_, idx_TK, J(), Expanded() ? E : n, handle, saved);
  if (Expanded()) {
    PlanExpanded(stream, overflow, handle, work);
    return;
  }
  const int64_t N = options_.tokens_received(T);
  handle->source = saved.Allocate("ep/source", DType::kI64, {R});
  handle->recv_offsets = saved.Allocate("ep/recv_offsets", DType::kI64, {n + 1});
  handle->recv_slot = saved.Allocate("ep/recv_slot", DType::kI64, {N, K});
  PlanDeduplicated(stream, overflow, handle, work);
}

// In: this rank's own counts by expert. Out: everybody's, with their T and R.
void MpiDispatcher::ExchangeCounts(const Stream& stream, int64_t T, int64_t R,
                                   RoutingHandle* handle) {
  const int64_t E = options_.num_experts, n = options_.ep, row = E + 2;
  int64_t* counts = handle->counts.as<int64_t>();
  int64_t* own = counts + options_.ep_index * row;
  own[E] = T;
  own[E + 1] = R;
  std::vector<int64_t> bounds;
  for (int64_t p = 0; p <= n; ++p) bounds.push_back(p * row);
  comm_->AllGather(stream, handle->counts, bounds);
  for (int64_t p = 0; p < n; ++p) {
    int64_t sum = 0;
    for (int64_t e = 0; e < E; ++e) {
      YM_CHECK_GE(counts[p * row + e], 0, "pairs of rank ", p, " for expert ", e, ", seen by ",
                  Me());
      sum += counts[p * row + e];
    }
    YM_CHECK_LE(sum, counts[p * row + E] * options_.top_k, "pairs counted and T * K of rank ", p,
                ", seen by ", Me());
  }
}

// counts -> begins, offsets, needed and the overflow flag.
void MpiDispatcher::PlaceWindows(const RoutingHandle& handle, const Tensor& overflow) const {
  const int64_t E = options_.num_experts, L = local_experts(), n = options_.ep,
                me = options_.ep_index;
  const int64_t* counts = handle.counts.as<int64_t>();
  int64_t* begins = handle.begins.as<int64_t>();
  int64_t* offsets = handle.offsets.as<int64_t>();
  int64_t needed = 0, total = 0;
  bool over = false;
  for (int64_t q = 0; q < n; ++q) {
    const int64_t window = counts[q * (E + 2) + E + 1];
    int64_t row = 0;
    for (int64_t e = q * L; e < (q + 1) * L; ++e) {
      if (q == me) offsets[e - q * L] = std::min(row, window);
      for (int64_t p = 0; p < n; ++p) {
        begins[p * E + e] = row;
        row += counts[p * (E + 2) + e];
      }
    }
    if (q == me) offsets[L] = std::min(row, window);
    needed = std::max(needed, row);
    total += row;
    over = over || row > window;
  }
  int64_t pairs = 0;
  for (int64_t p = 0; p < n; ++p) pairs += counts[p * (E + 2) + E] * options_.top_k;
  YM_CHECK_LE(total, pairs, "rows of all windows and pairs of all ranks, seen by ", Me());
  handle.needed.as<int64_t>()[0] = needed;
  if (rows_needed_.defined()) {
    int64_t& most = rows_needed_.as<int64_t>()[0];
    most = std::max(most, needed);
  }
  if (over) overflow.as<int32_t>()[0] = 1;
}

void MpiDispatcher::PlanSendOrder(const Stream& stream, const Tensor& overflow,
                                  RoutingHandle* handle, Arena& work) {
  // The send order is the permutation to rows by global expert: by rank, then by local expert, then
  // by token.
  PermutePlan(stream,
              {.idx = handle->idx,
               .expert_begin = 0,
               .offsets = handle->send_offsets,
               .slot = handle->send_slot,
               .source = handle->send_source},
              overflow, work);
  if (stream.dry()) return;
  const int64_t E = options_.num_experts, T = handle->idx.dim(0), me = options_.ep_index;
  const int32_t* idx = handle->idx.as<int32_t>();
  for (int64_t pair = 0; pair < handle->idx.elements(); ++pair)
    YM_CHECK(-1 <= idx[pair] && idx[pair] < E, "expert ", idx[pair], " of ", E, " on ", Me());
  const int64_t* sent = handle->send_offsets.as<int64_t>();
  int64_t* own = handle->counts.as<int64_t>() + me * (E + 2);
  for (int64_t e = 0; e < E; ++e) own[e] = sent[e + 1] - sent[e];
  ExchangeCounts(stream, T, window_rows(T), handle);
  PlaceWindows(*handle, overflow);
}

void MpiDispatcher::PlanExpanded(const Stream& stream, const Tensor& overflow,
                                 RoutingHandle* handle, Arena& work) {
  PlanSendOrder(stream, overflow, handle, work);
  if (stream.dry()) return;
  const int64_t E = options_.num_experts, me = options_.ep_index;
  const int64_t* sent = handle->send_offsets.as<int64_t>();
  // Pairs beyond a window are not sent; combine counts them as zero.
  for (int64_t e = 0; e < E; ++e) {
    for (int64_t i = sent[e] + BlockOf(*handle, me, e).rows; i < sent[e + 1]; ++i) {
      handle->send_slot.as<int64_t>()[handle->send_source.as<int64_t>()[i]] = -1;
    }
  }
}

void MpiDispatcher::PlanDeduplicated(const Stream& stream, const Tensor& overflow,
                                     RoutingHandle* handle, Arena& work) {
  const int64_t T = handle->idx.dim(0), K = options_.top_k, E = options_.num_experts,
                n = options_.ep;
  const int64_t me = options_.ep_index, J = this->J(), R = window_rows(T);
  ArenaScope scope(work);
  // Of each row to send: the window row of each of its token's choices at that rank, -1 for the
  // others.
  const Tensor places = work.Allocate("ep/places", DType::kI64, {T * J, K});
  const Tensor next_row = work.Allocate("ep/next_row", DType::kI64, {E});
  const Tensor row_of_pair = work.Allocate("ep/row_of_pair", DType::kI64, {T, K});
  const Tensor tokens_from = work.Allocate("ep/tokens_from", DType::kI64, {n});
  const Tensor tokens_to = work.Allocate("ep/tokens_to", DType::kI64, {n});
  if (stream.dry()) return;

  const int32_t* idx = handle->idx.as<int32_t>();
  int64_t* own = handle->counts.as<int64_t>() + me * (E + 2);
  std::fill(own, own + E, 0);
  for (int64_t pair = 0; pair < T * K; ++pair) {
    YM_CHECK(-1 <= idx[pair] && idx[pair] < E, "expert ", idx[pair], " of ", E, " on ", Me());
    if (idx[pair] >= 0) ++own[idx[pair]];
  }
  ExchangeCounts(stream, T, R, handle);
  PlaceWindows(*handle, overflow);

  // The window row of each pair, -1 beyond the window; how many tokens go to each rank.
  int64_t* rows = row_of_pair.as<int64_t>();
  int64_t* next = next_row.as<int64_t>();
  int64_t* to = tokens_to.as<int64_t>();
  std::fill(to, to + n, 0);
  for (int64_t e = 0; e < E; ++e) next[e] = BlockOf(*handle, me, e).row;
  for (int64_t t = 0; t < T; ++t) {
    int64_t last_rank = -1, last_expert = -1;
    for (int64_t k = 0; k < K; ++k) {
      const int64_t pair = t * K + k, e = idx[pair];
      rows[pair] = -1;
      if (e < 0) continue;  // over capacity
      YM_CHECK(e > last_expert, "experts of token ", t, " are not ascending on ", Me());
      last_expert = e;
      const Block block = BlockOf(*handle, me, e);
      const int64_t row = next[e]++;
      rows[pair] = row < block.row + block.rows ? row : -1;
      if (rows[pair] >= 0 && placement_.OwnerOf(e) != last_rank)
        ++to[last_rank = placement_.OwnerOf(e)];
    }
  }
  int64_t* send_offsets = handle->send_offsets.as<int64_t>();
  send_offsets[0] = 0;
  for (int64_t q = 0; q < n; ++q) send_offsets[q + 1] = send_offsets[q] + to[q];

  int64_t* send_slot = handle->send_slot.as<int64_t>();
  int64_t* send_source = handle->send_source.as<int64_t>();
  std::fill(send_slot, send_slot + T * J, -1);
  std::vector<int64_t> at(send_offsets, send_offsets + n);
  for (int64_t t = 0; t < T; ++t) {
    int64_t last_rank = -1, j = -1;
    for (int64_t k = 0; k < K; ++k) {
      const int64_t pair = t * K + k;
      if (rows[pair] < 0) continue;
      const int64_t q = placement_.OwnerOf(idx[pair]);
      if (q != last_rank) {
        last_rank = q;
        ++j;
        const int64_t i = at[q]++;
        send_slot[t * J + j] = i;
        send_source[i] = t * J + j;
        std::fill(places.as<int64_t>() + i * K, places.as<int64_t>() + (i + 1) * K, -1);
      }
      places.as<int64_t>()[send_slot[t * J + j] * K + k] = rows[pair];
    }
  }

  std::vector<Transfer> sends, receives;
  for (int i = 0; i < static_cast<int>(n); ++i) {
    const int q = static_cast<int>((me + i) % n), p = static_cast<int>((me + n - i) % n);
    sends.push_back(Rows(q, tokens_to, q, 1));
    receives.push_back(Rows(p, tokens_from, p, 1));
  }
  comm_->Exchange(sends, receives, "token counts");
  int64_t* recv_offsets = handle->recv_offsets.as<int64_t>();
  recv_offsets[0] = 0;
  for (int64_t p = 0; p < n; ++p)
    recv_offsets[p + 1] = recv_offsets[p] + tokens_from.as<int64_t>()[p];
  const int64_t received = recv_offsets[n];
  YM_CHECK_LE(received, handle->recv_slot.dim(0), "tokens received by ", Me());
  ExchangeTokens(*handle, places, handle->recv_slot, false, "places of tokens");

  // Invert: the received token and choice of each window row. Every row up to offsets[L] has
  // exactly one.
  const int64_t* recv_slot = handle->recv_slot.as<int64_t>();
  int64_t* source = handle->source.as<int64_t>();
  const int64_t filled = handle->offsets.as<int64_t>()[local_experts()];
  std::fill(source, source + R, -1);
  int64_t placed = 0;
  for (int64_t pair = 0; pair < received * K; ++pair) {
    if (recv_slot[pair] < 0) continue;
    YM_CHECK(recv_slot[pair] < filled && source[recv_slot[pair]] == -1, "row ", recv_slot[pair],
             " of ", filled, " on ", Me());
    source[recv_slot[pair]] = pair;
    ++placed;
  }
  YM_CHECK_EQ(placed, filled, "rows placed and rows counted on ", Me());
}

void MpiDispatcher::ExchangeWindow(const RoutingHandle& handle, const Tensor& sent,
                                   const Tensor& window, bool back, const char* what) {
  const int64_t L = local_experts(), n = options_.ep, me = options_.ep_index;
  const int64_t* send_offsets = handle.send_offsets.as<int64_t>();
  std::vector<Transfer> out, in;
  int64_t rows_in = 0;
  // Peers in a rotated order, so that not all ranks send to rank 0 first; a pair of ranks sees its
  // experts ascending.
  for (int64_t i = 0; i < n; ++i) {
    const int q = static_cast<int>((me + i) % n), p = static_cast<int>((me + n - i) % n);
    for (int64_t l = 0; l < L; ++l) {
      const Block to = BlockOf(handle, me, q * L + l), from = BlockOf(handle, p, me * L + l);
      if (to.rows > 0) out.push_back(Rows(q, sent, send_offsets[q * L + l], to.rows));
      if (from.rows > 0) in.push_back(Rows(p, window, from.row, from.rows));
      rows_in += from.rows;
    }
  }
  YM_CHECK_EQ(rows_in, handle.offsets.as<int64_t>()[L], what,
              ": rows received and rows of the window, on ", Me());
  comm_->Exchange(back ? in : out, back ? out : in, what);
}

void MpiDispatcher::ExchangeTokens(const RoutingHandle& handle, const Tensor& sent,
                                   const Tensor& received, bool back, const char* what) {
  const int64_t n = options_.ep, me = options_.ep_index;
  const int64_t* send_offsets = handle.send_offsets.as<int64_t>();
  const int64_t* recv_offsets = handle.recv_offsets.as<int64_t>();
  std::vector<Transfer> out, in;
  for (int64_t i = 0; i < n; ++i) {
    const int q = static_cast<int>((me + i) % n), p = static_cast<int>((me + n - i) % n);
    out.push_back(Rows(q, sent, send_offsets[q], send_offsets[q + 1] - send_offsets[q]));
    in.push_back(Rows(p, received, recv_offsets[p], recv_offsets[p + 1] - recv_offsets[p]));
  }
  comm_->Exchange(back ? in : out, back ? out : in, what);
}

int64_t MpiDispatcher::TokensReceived(const RoutingHandle& handle, const Stream& stream) const {
  // The dry device plans for the most there can be.
  return stream.dry() ? handle.recv_slot.dim(0) : handle.recv_offsets.as<int64_t>()[options_.ep];
}

void MpiDispatcher::Dispatch(const Stream& stream, const RoutingHandle& handle, const Tensor& x_TD,
                             const Tensor& w_TK, const Tensor& x_RD, const Tensor& w_R,
                             Arena& work) {
  const int64_t T = handle.idx.dim(0), K = options_.top_k, D = x_TD.cols(), M = T * J();
  YM_CHECK(x_TD.dim(0) == T && x_RD.dim(0) == window_rows(T) && x_RD.cols() == D &&
               x_RD.dtype() == x_TD.dtype(),
           "dispatch of ", x_TD.shape(), " to ", x_RD.shape(), " on ", Me());
  YM_CHECK_EQ(w_TK.defined(), w_R.defined(), "weights go in if and only if they come out");
  const bool weights = w_TK.defined();
  ArenaScope scope(work);
  const Tensor x_sent = work.Allocate("ep/x_sent", x_TD.dtype(), {M, D});
  if (Expanded()) {
    const Tensor w_sent = weights ? work.Allocate("ep/w_sent", w_TK.dtype(), {M}) : Tensor();
    Pack(stream, handle, x_TD, w_TK, x_sent, w_sent);
    if (stream.dry()) return;
    ExchangeWindow(handle, x_sent, x_RD, false, "dispatch");
    if (weights) ExchangeWindow(handle, w_sent, w_R, false, "dispatch of weights");
    return;
  }
  const int64_t N = TokensReceived(handle, stream);
  const Tensor x_received = work.Allocate("ep/x_received", x_TD.dtype(), {N, D});
  Permute(stream, {.x_TD = x_TD,
                   .source = handle.send_source,
                   .offsets = handle.send_offsets,
                   .x_RD = x_sent,
                   .top_k = J()});
  if (!stream.dry()) ExchangeTokens(handle, x_sent, x_received, false, "dispatch");
  Tensor w_received;
  if (weights) {  // all K weights of a token go along with it
    const Tensor w_sent = work.Allocate("ep/w_sent", w_TK.dtype(), {M, K});
    w_received = work.Allocate("ep/w_received", w_TK.dtype(), {N, K});
    Permute(stream, {.x_TD = w_TK,
                     .source = handle.send_source,
                     .offsets = handle.send_offsets,
                     .x_RD = w_sent,
                     .top_k = J()});
    if (!stream.dry()) ExchangeTokens(handle, w_sent, w_received, false, "dispatch of weights");
  }
  Permute(stream, {.x_TD = x_received,
                   .w_TK = w_received,
                   .source = handle.source,
                   .offsets = handle.offsets,
                   .x_RD = x_RD,
                   .w_R = w_R,
                   .top_k = K});
}

void MpiDispatcher::Combine(const Stream& stream, const RoutingHandle& handle, const Tensor& y_RD,
                            const Tensor& residual, const Tensor& addend, const Tensor& y_TD,
                            const Tensor& dw_R, const Tensor& dw_TK, Arena& work) {
  const int64_t T = handle.idx.dim(0), K = options_.top_k, D = y_TD.cols(), M = T * J();
  YM_CHECK(y_TD.dim(0) == T && y_RD.dim(0) == window_rows(T) && y_RD.cols() == D &&
               y_RD.dtype() == y_TD.dtype(),
           "combine of ", y_RD.shape(), " to ", y_TD.shape(), " on ", Me());
  YM_CHECK_EQ(dw_R.defined(), dw_TK.defined(),
              "weight gradients go in if and only if they come out");
  const bool weights = dw_R.defined();
  ArenaScope scope(work);
  const Tensor y_back = work.Allocate("ep/y_back", y_RD.dtype(), {M, D});
  if (Expanded()) {
    const Tensor dw_back = weights ? work.Allocate("ep/dw_back", dw_R.dtype(), {M}) : Tensor();
    if (!stream.dry()) {
      ExchangeWindow(handle, y_back, y_RD, true, "combine");
      if (weights) ExchangeWindow(handle, dw_back, dw_R, true, "combine of weight gradients");
    }
    Unpack(stream, handle, y_back, residual, addend, y_TD, dw_back, dw_TK);
    return;
  }
  const int64_t N = TokensReceived(handle, stream);
  const Tensor slots = handle.recv_slot.Slice(0, N);
  const Tensor partial = work.Allocate("ep/partial", y_RD.dtype(), {N, D});
  Tensor dw_partial, dw_back;
  if (weights) {
    dw_partial = work.Allocate("ep/dw_partial", dw_R.dtype(), {N, K});
    dw_back = work.Allocate("ep/dw_back", dw_R.dtype(), {M, K});
  }
  Unpermute(stream,
            {.y_RD = y_RD, .slot = slots, .dw_R = dw_R, .y_TD = partial, .dw_TK = dw_partial});
  if (!stream.dry()) {
    ExchangeTokens(handle, y_back, partial, true, "combine");
    if (weights) ExchangeTokens(handle, dw_back, dw_partial, true, "combine of weight gradients");
  }
  Unpermute(stream, {.y_RD = y_back,
                     .slot = handle.send_slot,
                     .residual = residual,
                     .addend = addend,
                     .y_TD = y_TD});
  // A choice's gradient comes back with the one rank that owns its expert, zero with the others.
  if (weights) Unpermute(stream, {.y_RD = dw_back, .slot = handle.send_slot, .y_TD = dw_TK});
}

}  // namespace yardmaster
