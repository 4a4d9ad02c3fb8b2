#include "src/comm/ep/cuda/peer_kernels.h"

#include "src/base/error.h"

#if YM_HAVE_CUDA

#include <algorithm>

#include "kernels/ep/plan.h"
#include "kernels/ep/rows.h"
#include "src/device/cuda/cuda_device.h"

namespace yardmaster {
namespace {

#define YM_EP_CHECK(op, call) device_.Check((call), (op), #call)

const char* OpName(int32_t op) {
  switch (static_cast<EpOp>(op)) {
    case EpOp::kNone: break;
    case EpOp::kCounts: return "exchange of counts";
    case EpOp::kPlaces: return "exchange of places";
    case EpOp::kDispatch: return "dispatch";
    case EpOp::kCombine: return "combine";
    case EpOp::kSendTokens: return "dispatch of tokens";
    case EpOp::kReturnTokens: return "combine of tokens";
    case EpOp::kRoundOut: return "dispatch of a round";
    case EpOp::kRoundBack: return "combine of a round";
  }
  return "operation";
}

PeerFailure Describe(const EpFailure& f, const EpOptions& options, double deadline_seconds) {
  PeerFailure out{f.rank, f.peer, f.expected, f.seen, ""};
  const std::string op = OpName(f.op);
  switch (static_cast<EpFault>(f.fault)) {
    case EpFault::kNone: break;
    case EpFault::kNotReady:
      out.what = StrCat("rank ", f.peer, " did not start ", op, " ", f.expected, " within ", deadline_seconds,
                        " s; it last started number ", f.seen);
      break;
    case EpFault::kNotDone:
      out.what = StrCat("rank ", f.peer, " did not finish ", op, " ", f.expected, " within ", deadline_seconds,
                        " s; it last finished number ", f.seen);
      break;
    case EpFault::kOrder:
      out.what = StrCat("rank ", f.peer, " started ", OpName(static_cast<int32_t>(f.seen & 0xFFFF)), " (regions ",
                        f.seen >> 16, ") where ", op, " (regions ", f.expected >> 16, ") was due");
      break;
    case EpFault::kCounts:
      out.what = StrCat(op, ": rank ", f.peer, " counts ", f.seen, " where ", f.expected, " is the limit");
      break;
  }
  out.what += StrCat(" (seen by ", options.Me(), ")");
  return out;
}

KernelType TypeOf(DType t) {
  YM_CHECK(t == DType::kBF16 || t == DType::kF32 || t == DType::kF64, "combine of ", DTypeName(t));
  return t == DType::kBF16 ? KernelType::kBf16 : t == DType::kF32 ? KernelType::kF32 : KernelType::kF64;
}

int BytesOf(const Tensor& weights) { return weights.defined() ? static_cast<int>(DTypeBytes(weights.dtype())) : 4; }

class CudaPeerKernels : public PeerKernels {
 public:
  CudaPeerKernels(const EpOptions& options, const PeerOptions& peer, PeerTable* table, CudaDevice& device)
      : options_(options), peer_(peer), table_(table), device_(device) {
    YM_CHECK(table->size() == options.ep && table->rank() == options.ep_index, options.Me(), " with a table of rank ",
             table->rank(), " of ", table->size());
    YM_CHECK(peer.num_sms >= 1 && peer.deadline_seconds > 0, peer.num_sms, " SMs, ", peer.deadline_seconds, " s");
    static_assert(PeerTable::kMaxPeers == kEpMaxRanks);
    const EpControlLayout layout{options.ep, EpMessageWords(options.ep, options.num_experts)};
    const int region = table->regions();
    table->Allocate(layout.bytes());
    group_ = {.rank = options.ep_index,
              .size = options.ep,
              .words = layout.words,
              .deadline_ns = static_cast<int64_t>(peer.deadline_seconds * 1e9),
              .poison = nullptr,
              .control = {}};
    for (int p = 0; p < options.ep; ++p) group_.control[p] = table->region(region).base[static_cast<size_t>(p)];
    launch_.blocks = std::min(peer.num_sms, device.properties().multiprocessors);
    YM_EP_CHECK("start", LoadEpPlanKernels());
    YM_EP_CHECK("start", LoadEpRowKernels(&launch_.bulk));
  }

  void Counts(const Stream& stream, const RoutingHandle& handle, const Tensor& expert_starts, int64_t R,
              const Tensor& overflow, const Tensor& rows_needed) override {
    // A step in which a peer is missing must change nothing: a failure of any later operation raises it too.
    group_.poison = overflow.as<int32_t>();
    YM_EP_CHECK("exchange of counts",
                EpExchangeCounts(group_,
                                 {.expert_starts = expert_starts.as<int64_t>(),
                                  .T = handle.idx.dim(0),
                                  .K = options_.top_k,
                                  .R = R,
                                  .E = options_.num_experts,
                                  .counts = handle.counts.as<int64_t>(),
                                  .begins = handle.begins.as<int64_t>(),
                                  .offsets = handle.offsets.as<int64_t>(),
                                  .needed = handle.needed.as<int64_t>(),
                                  .rows_needed = rows_needed.defined() ? rows_needed.as<int64_t>() : nullptr,
                                  .overflow = overflow.as<int32_t>()},
                                 On(stream)));
  }

  void ClampSlots(const Stream& stream, const RoutingHandle& handle) override {
    YM_EP_CHECK("plan", EpClampSlots(group_, Pairs(handle, handle.send_offsets), handle.send_slot.as<int64_t>(), On(stream)));
  }

  void TokenRanks(const Stream& stream, const RoutingHandle& handle, const Tensor& expert_starts, const Tensor& slot,
                  const Tensor& rows, const Tensor& ranks) override {
    YM_EP_CHECK("plan", EpTokenRanks(group_, Pairs(handle, expert_starts), slot.as<int64_t>(), ranks.dim(1),
                                     rows.as<int64_t>(), ranks.as<int32_t>(), On(stream)));
  }

  void Places(const Stream& stream, const RoutingHandle& handle, const Tensor& rows) override {
    const EpWindow window = Window("places of tokens", handle.recv_slot);
    YM_EP_CHECK("exchange of places", EpExchangePlaces(group_,
                                                       {.idx = handle.idx.as<int32_t>(),
                                                        .T = handle.idx.dim(0),
                                                        .K = options_.top_k,
                                                        .J = handle.send_slot.dim(1),
                                                        .E = options_.num_experts,
                                                        .rows = rows.as<int64_t>(),
                                                        .send_offsets = handle.send_offsets.as<int64_t>(),
                                                        .send_slot = handle.send_slot.as<int64_t>(),
                                                        .region = window.region,
                                                        .place = window.place,
                                                        .N = handle.recv_slot.dim(0),
                                                        .tokens = handle.tokens.as<int64_t>(),
                                                        .recv_offsets = handle.recv_offsets.as<int64_t>()},
                                                       std::min(launch_.blocks, 8), On(stream)));
  }

  void Dispatch(const Stream& stream, const RoutingHandle& handle, const Tensor& x, const Tensor& w, const Tensor& x_R,
                const Tensor& w_R) override {
    YM_EP_CHECK("dispatch", EpDispatch(group_, DispatchArgs(handle, x, w, x_R, w_R), launch_, On(stream)));
  }

  void Combine(const Stream& stream, const RoutingHandle& handle, const Tensor& y_R, const Tensor& residual,
               const Tensor& addend, const Tensor& y, const Tensor& dw_R, const Tensor& dw) override {
    const EpWindow window = Window("rows to combine", y_R);
    YM_EP_CHECK("combine", EpCombine(group_, TypeOf(y.dtype()),
                                     {.route = Route(handle),
                                      .y_R = window,
                                      .D = y.cols(),
                                      .residual = residual.data(),
                                      .addend = addend.data(),
                                      .y = y.data(),
                                      .dw_R = dw.defined() ? Window("weight gradients", dw_R) : window,
                                      .dw = dw.data()},
                                     launch_, On(stream)));
  }

  void SendTokens(const Stream& stream, const RoutingHandle& handle, const Tensor& x, const Tensor& w,
                  const Tensor& x_received, const Tensor& w_received) override {
    YM_EP_CHECK("dispatch of tokens",
                EpSendTokens(group_, DispatchArgs(handle, x, w, x_received, w_received), launch_, On(stream)));
  }

  void Replicate(const Stream& stream, const RoutingHandle& handle, const Tensor& x_received, const Tensor& w_received,
                 const Tensor& x_R, const Tensor& w_R) override {
    YM_EP_CHECK("dispatch", EpReplicate({.route = Route(handle),
                                         .ranks = options_.ep,
                                         .x_received = x_received.data(),
                                         .row_bytes = x_R.cols() * DTypeBytes(x_R.dtype()),
                                         .x_R = x_R.data(),
                                         .row_stride = x_R.cols() * DTypeBytes(x_R.dtype()),
                                         .w_received = w_received.data(),
                                         .weight_bytes = BytesOf(w_R),
                                         .w_R = w_R.data()},
                                        launch_, On(stream)));
  }

  void ReturnTokens(const Stream& stream, const RoutingHandle& handle, const Tensor& y_R, const Tensor& y_back,
                    const Tensor& dw_R, const Tensor& dw_back) override {
    const EpWindow window = Window("sums of tokens", y_back);
    YM_EP_CHECK("combine of tokens",
                EpReturnTokens(group_, TypeOf(y_R.dtype()),
                               {.route = Route(handle),
                                .y_R = y_R.data(),
                                .D = y_R.cols(),
                                .y_back = window,
                                .dw_R = dw_R.data(),
                                .dw_back = dw_R.defined() ? Window("weight gradients", dw_back) : window},
                               launch_, On(stream)));
  }

  void SumTokens(const Stream& stream, const RoutingHandle& handle, const Tensor& y_back, const Tensor& residual,
                 const Tensor& addend, const Tensor& y, const Tensor& dw_back, const Tensor& dw) override {
    YM_EP_CHECK("combine", EpSumTokens(TypeOf(y.dtype()),
                                       {.route = Route(handle),
                                        .y_back = y_back.data(),
                                        .D = y.cols(),
                                        .residual = residual.data(),
                                        .addend = addend.data(),
                                        .y = y.data(),
                                        .dw_back = dw_back.data(),
                                        .dw = dw.data()},
                                       launch_, On(stream)));
  }

  void MoveRound(const Stream& stream, const RoutingHandle& handle, int64_t begin, int64_t end, const Tensor& sent,
                 const Tensor& window, bool back) override {
    static_assert(sizeof(EpBlock) == 4 * sizeof(int64_t));
    const int64_t row_bytes = window.shape().rank() == 1 ? DTypeBytes(window.dtype()) : window.cols() * DTypeBytes(window.dtype());
    EpWindow rows = Window("rows of a round", window);
    rows.stride = row_bytes;
    YM_EP_CHECK("a round", EpMoveRound(group_,
                                       {.blocks = reinterpret_cast<const EpBlock*>(handle.round_blocks.as<int64_t>()) + begin,
                                        .num_blocks = end - begin,
                                        .sent = sent.data(),
                                        .row_bytes = row_bytes,
                                        .window = rows,
                                        .back = back},
                                       launch_, On(stream)));
  }

  void SetValues(const Stream& stream, const std::vector<int64_t>& values, const Tensor& to) override {
    YM_CHECK_LE(static_cast<int64_t>(values.size()), to.elements());
    YM_EP_CHECK("exact replay", EpStoreValues(values.data(), static_cast<int64_t>(values.size()), to.as<int64_t>(), On(stream)));
  }

  std::vector<int64_t> ToHost(const Stream& stream, const Tensor& values) override {
    std::vector<int64_t> host(static_cast<size_t>(values.elements()));
    YM_EP_CHECK("exact replay", cudaMemcpyAsync(host.data(), values.as<int64_t>(), host.size() * sizeof(int64_t),
                                                cudaMemcpyDeviceToHost, On(stream)));
    YM_EP_CHECK("exact replay", cudaStreamSynchronize(On(stream)));
    return host;
  }

  void FromHost(const Stream& stream, const std::vector<int64_t>& values, const Tensor& to) override {
    YM_CHECK_LE(static_cast<int64_t>(values.size()), to.elements());
    if (values.empty()) return;
    // From pageable memory: the values are taken before the call returns.
    YM_EP_CHECK("exact replay", cudaMemcpyAsync(to.as<int64_t>(), values.data(), values.size() * sizeof(int64_t),
                                                cudaMemcpyHostToDevice, On(stream)));
  }

  std::optional<PeerFailure> Failure() override {
    EpControl control{};
    YM_EP_CHECK("peer failure", cudaMemcpy(&control, group_.control[group_.rank], sizeof(control), cudaMemcpyDeviceToHost));
    if (control.failed == 0) return std::nullopt;
    return Describe(control.failure, options_, peer_.deadline_seconds);
  }

 private:
  cudaStream_t On(const Stream& stream) const {
    YM_CHECK(&stream.device() == &device_, "a stream of another device on ", options_.Me());
    return device_.StreamOf(stream.handle());
  }

  // A tensor that peers reach.
  EpWindow Window(const char* what, const Tensor& t) const {
    const std::optional<PeerTable::Place> place = table_->Find(t.data(), static_cast<size_t>(t.bytes()));
    YM_CHECK(place.has_value(), what, " on ", options_.Me(), ": ", t.shape(),
             " is not in peer memory; its arena must lie on a PeerMemory");
    EpWindow window{.region = {.id = place->region, .base = {}},
                    .place = place->offset,
                    .stride = t.cols() * DTypeBytes(t.dtype())};
    const PeerTable::Region& region = table_->region(place->region);
    std::copy(region.base.begin(), region.base.end(), window.region.base);
    return window;
  }

  EpPairs Pairs(const RoutingHandle& handle, const Tensor& expert_starts) const {
    return {.idx = handle.idx.as<int32_t>(),
            .T = handle.idx.dim(0),
            .K = options_.top_k,
            .E = options_.num_experts,
            .counts = handle.counts.as<int64_t>(),
            .begins = handle.begins.as<int64_t>(),
            .expert_starts = expert_starts.as<int64_t>()};
  }

  EpRoute Route(const RoutingHandle& handle) const {
    const bool tokens = handle.tokens.defined();
    return {.idx = handle.idx.as<int32_t>(),
            .T = handle.idx.dim(0),
            .K = options_.top_k,
            .E = options_.num_experts,
            .begins = handle.begins.as<int64_t>(),
            .send_offsets = handle.send_offsets.as<int64_t>(),
            .send_slot = handle.send_slot.as<int64_t>(),
            .J = handle.send_slot.dim(1),
            .tokens = tokens ? handle.tokens.as<int64_t>() : nullptr,
            .recv_offsets = tokens ? handle.recv_offsets.as<int64_t>() : nullptr,
            .recv_slot = tokens ? handle.recv_slot.as<int64_t>() : nullptr};
  }

  EpDispatchArgs DispatchArgs(const RoutingHandle& handle, const Tensor& x, const Tensor& w, const Tensor& x_R,
                              const Tensor& w_R) const {
    const EpWindow window = Window("rows of dispatch", x_R);
    return {.route = Route(handle),
            .x = x.data(),
            .row_bytes = x.cols() * DTypeBytes(x.dtype()),
            .x_R = window,
            .w = w.data(),
            .weight_bytes = BytesOf(w),
            .w_R = w.defined() ? Window("weights of dispatch", w_R) : window};
  }

  EpOptions options_;
  PeerOptions peer_;
  PeerTable* table_;
  CudaDevice& device_;
  EpGroup group_{};
  EpLaunch launch_{};
};

}  // namespace

std::unique_ptr<PeerKernels> MakePeerKernels(const EpOptions& options, const PeerOptions& peer, PeerTable* table,
                                             Device* device) {
  YM_CHECK(device->kind() == DeviceKind::kCuda, "peer memory is of the cuda device, not ", device->description());
  return std::make_unique<CudaPeerKernels>(options, peer, table, static_cast<CudaDevice&>(*device));
}

}  // namespace yardmaster

#else

namespace yardmaster {

std::unique_ptr<PeerKernels> MakePeerKernels(const EpOptions& options, const PeerOptions&, PeerTable*, Device*) {
  throw ConfigError("expert parallelism over peer memory needs a build with CUDA", options.Me());
}

}  // namespace yardmaster

#endif
