#include "src/comm/ep/cuda/peer_dispatcher.h"

#include "src/base/check.h"
#include "src/base/error.h"
#include "src/ops/permute.h"

namespace yardmaster {

PeerDispatcher::PeerDispatcher(const EpOptions& options, const PeerOptions& peer, PeerTable* table, Device* device)
    : options_(options), num_sms_(peer.num_sms) {
  CheckEpOptions(options);
  YM_CHECK_EQ(table != nullptr, device != nullptr, "a peer table goes with its device");
  if (table != nullptr) kernels_ = MakePeerKernels(options, peer, table, device);
}

std::optional<PeerFailure> PeerDispatcher::Failure() const {
  return kernels_ == nullptr ? std::nullopt : kernels_->Failure();
}

void PeerDispatcher::CheckStream(const Stream& stream, const char* op) const {
  YM_CHECK(stream.dry() || (stream.kind() == DeviceKind::kCuda && kernels_ != nullptr), op,
           " over peer memory is for the cuda device, on ", options_.Me());
}

// ---- Plan: idx -> counts of all ranks -> places

void PeerDispatcher::Plan(const Stream& stream, const Tensor& idx_TK, const Tensor& overflow, RoutingHandle* handle,
                          Arena& saved, Arena& work) {
  CheckStream(stream, "Plan");
  const int64_t T = idx_TK.dim(0), K = options_.top_k, n = options_.ep, E = options_.num_experts;
  const int64_t J = options_.rows_per_token(), R = window_rows(T);
  AllocatePlan(options_, idx_TK, J, options_.expanded() ? E : n, handle, saved);
  handle->tokens = {};
  ArenaScope scope(work);
  if (options_.expanded()) {
    // The send order is the permutation to rows by global expert: by rank, local expert, token.
    PermutePlan(stream,
                {.idx = idx_TK,
                 .expert_begin = 0,
                 .offsets = handle->send_offsets,
                 .slot = handle->send_slot,
                 .source = handle->send_source},
                overflow, work);
    if (stream.dry()) return;
    kernels_->Counts(stream, *handle, handle->send_offsets, R, overflow, rows_needed_);
    kernels_->ClampSlots(stream, *handle);
    return;
  }
  handle->tokens = saved.Allocate("ep/tokens", DType::kI64, {n, n});
  handle->recv_offsets = saved.Allocate("ep/recv_offsets", DType::kI64, {n + 1});
  handle->recv_slot = saved.Allocate("ep/recv_slot", DType::kI64, {options_.tokens_received(T), K});
  const Tensor expert_starts = work.Allocate("ep/expert_starts", DType::kI64, {E + 1});
  const Tensor slot = work.Allocate("ep/slot", DType::kI64, {T, K});
  const Tensor rows = work.Allocate("ep/rows", DType::kI64, {T, K});
  const Tensor ranks = work.Allocate("ep/ranks", DType::kI32, {T, J});
  {
    ArenaScope sort(work);
    const Tensor source = work.Allocate("ep/source", DType::kI64, {T * K});
    PermutePlan(stream,
                {.idx = idx_TK, .expert_begin = 0, .offsets = expert_starts, .slot = slot, .source = source},
                overflow, work);
  }
  if (!stream.dry()) {
    kernels_->Counts(stream, *handle, expert_starts, R, overflow, rows_needed_);
    kernels_->TokenRanks(stream, *handle, expert_starts, slot, rows, ranks);
  }
  // Now by rank, then by token.
  PermutePlan(stream,
              {.idx = ranks,
               .expert_begin = 0,
               .offsets = handle->send_offsets,
               .slot = handle->send_slot,
               .source = handle->send_source},
              overflow, work);
  if (!stream.dry()) kernels_->Places(stream, *handle, rows);
}

// ---- Dispatch: x_TD, w_TK -> x_RD, w_R

void PeerDispatcher::Dispatch(const Stream& stream, const RoutingHandle& handle, const Tensor& x_TD, const Tensor& w_TK,
                              const Tensor& x_RD, const Tensor& w_R, Arena& work) {
  CheckStream(stream, "Dispatch");
  const int64_t T = handle.idx.dim(0), K = options_.top_k, D = x_TD.cols(), R = window_rows(T);
  YM_CHECK(x_TD.dim(0) == T && x_RD.shape() == Shape({R, D}) && x_RD.dtype() == x_TD.dtype() && x_TD.contiguous() &&
               x_RD.contiguous(),
           "dispatch of ", x_TD.shape(), " to ", x_RD.shape(), " on ", options_.Me());
  YM_CHECK_EQ(w_TK.defined(), w_R.defined(), "weights go in if and only if they come out");
  if (w_TK.defined()) {
    YM_CHECK(w_TK.shape() == Shape({T, K}) && w_R.shape() == Shape({R}) && w_TK.dtype() == w_R.dtype(),
             "dispatch of weights ", w_TK.shape(), " to ", w_R.shape(), " on ", options_.Me());
  }
  if (options_.expanded()) {
    if (!stream.dry()) kernels_->Dispatch(stream, handle, x_TD, w_TK, x_RD, w_R);
    return;
  }
  ArenaScope scope(work);
  const int64_t N = options_.tokens_received(T);
  const Tensor x_received = work.Allocate("ep/x_received", x_TD.dtype(), {N, D});
  // All K weights of a token go along with it.
  const Tensor w_received = w_TK.defined() ? work.Allocate("ep/w_received", w_TK.dtype(), {N, K}) : Tensor();
  if (stream.dry()) return;
  kernels_->SendTokens(stream, handle, x_TD, w_TK, x_received, w_received);
  kernels_->Replicate(stream, handle, x_received, w_received, x_RD, w_R);
}

// ---- Combine: y_RD, dw_R -> y_TD, dw_TK. The adjoint of dispatch

void PeerDispatcher::Combine(const Stream& stream, const RoutingHandle& handle, const Tensor& y_RD,
                             const Tensor& residual, const Tensor& addend, const Tensor& y_TD, const Tensor& dw_R,
                             const Tensor& dw_TK, Arena& work) {
  CheckStream(stream, "Combine");
  const int64_t T = handle.idx.dim(0), K = options_.top_k, D = y_TD.cols(), R = window_rows(T);
  YM_CHECK(y_TD.dim(0) == T && y_RD.shape() == Shape({R, D}) && y_RD.dtype() == y_TD.dtype() && y_TD.contiguous() &&
               y_RD.contiguous(),
           "combine of ", y_RD.shape(), " to ", y_TD.shape(), " on ", options_.Me());
  for (const Tensor& t : {residual, addend}) {
    YM_CHECK(!t.defined() || (t.shape() == y_TD.shape() && t.dtype() == y_TD.dtype() && t.contiguous()), "combine adds ",
             t.shape(), " to ", y_TD.shape(), " on ", options_.Me());
  }
  YM_CHECK_EQ(dw_R.defined(), dw_TK.defined(), "weight gradients go in if and only if they come out");
  if (dw_R.defined()) {
    const DType type = y_TD.dtype() == DType::kBF16 ? DType::kF32 : y_TD.dtype();
    YM_CHECK(dw_TK.shape() == Shape({T, K}) && dw_R.shape() == Shape({R}) && dw_TK.dtype() == type && dw_R.dtype() == type,
             "combine of weight gradients ", dw_R.shape(), " to ", dw_TK.shape(), " on ", options_.Me());
  }
  if (options_.expanded()) {
    if (!stream.dry()) kernels_->Combine(stream, handle, y_RD, residual, addend, y_TD, dw_R, dw_TK);
    return;
  }
  ArenaScope scope(work);
  const int64_t M = T * options_.rows_per_token();
  const Tensor y_back = work.Allocate("ep/y_back", y_RD.dtype(), {M, D});
  const Tensor dw_back = dw_R.defined() ? work.Allocate("ep/dw_back", dw_R.dtype(), {M, K}) : Tensor();
  if (stream.dry()) return;
  kernels_->ReturnTokens(stream, handle, y_RD, y_back, dw_R, dw_back);
  kernels_->SumTokens(stream, handle, y_back, residual, addend, y_TD, dw_back, dw_TK);
}

void PeerDispatcher::ThrowIfFailed() const {
  const std::optional<PeerFailure> failure = Failure();
  if (failure) {
    throw Error(ExitCode::kWatchdog, failure->what, options_.Me(),
                "look at the log of the rank that did not come; slow but healthy ranks need a longer "
                "runtime.timeout_seconds");
  }
}

}  // namespace yardmaster
