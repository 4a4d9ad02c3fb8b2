// File: src/nn/moe/moe_layer.h
//
// A mixture-of-experts layer in phases, so that a schedule can put the communication of one micro-batch
// beside the computation of another. Forward runs route, dispatch, experts, combine; backward runs the same
// phases in reverse, each one the adjoint of its forward: Combine's backward is a dispatch, Dispatch's
// backward is a combine.
//   y = residual + shared(x) + sum over the chosen experts k in ascending id of w_k * expert_k(x)
// With MicroBatch::exact the windows are filled in rounds, all of them in the last phase of a pass
// (exact_rounds.h).
// Windows (rows on their way between ranks) live on top of mb.saved from the phase that fills them to the one
// that reads them. R = dispatcher->window_rows(T); rows beyond offsets[L] are never touched.
#pragma once

#include <string>

#include "src/comm/ep/dispatcher.h"
#include "src/nn/mlp.h"
#include "src/nn/moe/grouped_experts.h"
#include "src/nn/moe/router.h"

namespace yardmaster {

struct MoeSaved {
  Tensor x;  // [T, D], the caller's: normalised input
  RouterSaved router;
  RoutingHandle handle;
  Tensor x_RD;  // [R, D], dispatched; with a quantised dispatch U8 [R, WireBytes] (ops/wire_rows.h)
  Tensor w_R;   // [R], accumulator type
  ExpertsSaved experts;
  MlpSaved shared;
  size_t window = 0;  // mark of mb.saved below y_RD
  Tensor y_RD;        // [R, D], from experts to combine
  // Backward.
  Tensor dy;           // [T, D], the caller's
  Tensor dy_RD;        // as x_RD
  Tensor dx_RD, dw_R;  // [R, D]; [R]
  Tensor dx;           // [T, D]: of the shared expert, then of all, for route
  Tensor dw_TK;        // [T, K], accumulator type
};

class MoeLayer {
 public:
  MoeLayer(ParameterList& list, const std::string& prefix, const ModelConfig& config, DType accum,
           Dispatcher* dispatcher, const MoeConfig& moe);
  // This layer's index in MicroBatch::forced_routing, and its load of the step, int64 [E].
  void set_layer(int64_t layer) { layer_ = layer; }
  void set_counts(const Tensor& counts_E) { counts_ = counts_E; }
  void set_sums_row(int64_t row) { sums_row_ = row; }  // of MicroBatch::sums

  void RouteForward(Context& ctx, MicroBatch& mb, const Tensor& x, MoeSaved& s) const;
  void RouteBackward(Context& ctx, MicroBatch& mb, MoeSaved& s) const;  // leaves the input's gradient in s.dx
  void RouteBackwardWeight(Context& ctx, MicroBatch& mb, MoeSaved& s) const;

  // Before backward, where the caller's x was not kept: the same values, elsewhere.
  static void SetInput(const Tensor& x, MoeSaved& s) { s.shared.x = s.x = s.router.x = x; }

  void DispatchForward(Context& ctx, MicroBatch& mb, const Tensor& y,
                       MoeSaved& s) const;  // shared(x) into y, meanwhile
  void DispatchBackward(Context& ctx, MicroBatch& mb, MoeSaved& s) const;

  void ExpertsForward(Context& ctx, MicroBatch& mb, MoeSaved& s) const;
  void ExpertsBackward(Context& ctx, MicroBatch& mb, MoeSaved& s) const;
  void ExpertsBackwardWeight(Context& ctx, MicroBatch& mb, MoeSaved& s) const;

  void CombineForward(Context& ctx, MicroBatch& mb, const Tensor& residual, const Tensor& y,
                      MoeSaved& s) const;
  void CombineBackward(Context& ctx, MicroBatch& mb, const Tensor& dy, MoeSaved& s) const;
  void CombineBackwardWeight(Context& ctx, MicroBatch& mb, MoeSaved& s) const;  // of the shared expert

  const Router& router() const { return router_; }

 private:
  // How this micro-batch passes the windows in rounds; null: at once.
  RoundDispatcher* Rounds(const MicroBatch& mb) const { return mb.exact ? dispatcher_->rounds() : nullptr; }

  int64_t PaddedRows(const MicroBatch& mb) const;  // of a local expert; 0: not padded
  // dx of the shared expert, to which combine adds that of the routed ones.
  Tensor SharedGradient(const MoeSaved& s) const { return has_shared_ ? s.dx : Tensor(); }

  Router router_;
  GroupedExperts experts_;
  bool has_shared_;
  Mlp shared_;
  bool pad_;  // to capacity
  Dispatcher* dispatcher_;
  int64_t layer_ = 0, sums_row_ = 0;
  Tensor counts_;
};

}  // namespace yardmaster
