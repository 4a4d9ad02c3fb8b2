#include "src/nn/moe/moe_layer.h"

#include "src/comm/ep/round_dispatcher.h"
#include "src/nn/moe/dispatched_rows.h"
#include "src/nn/moe/exact_rounds.h"
#include "src/ops/elementwise.h"

namespace yardmaster {

MoeLayer::MoeLayer(ParameterList& list, const std::string& prefix, const ModelConfig& c, DType accum,
                   Dispatcher* dispatcher, const MoeConfig& moe)
    : router_(list, prefix + ".gate", c, accum, moe),
      experts_(list, prefix + ".experts", c.n_routed_experts, c.hidden_size, c.moe_intermediate_size,
               dispatcher->expert_begin(), dispatcher->local_experts(), c.initializer_range),
      has_shared_(c.n_shared_experts > 0),
      pad_(moe.pad_to_capacity),
      dispatcher_(dispatcher) {
  if (has_shared_) {
    shared_ = Mlp(list, prefix + ".shared_experts", c.hidden_size,
                  c.n_shared_experts * c.moe_intermediate_size, c.initializer_range);
  }
}

// ---- route: x_TD -> idx_TK, w_TK, the load

void MoeLayer::RouteForward(Context& ctx, MicroBatch& mb, const Tensor& x, MoeSaved& s) const {
  s.x = x;
  const Tensor forced = mb.forced_routing ? mb.forced_routing->at(static_cast<size_t>(layer_)) : Tensor();
  const Tensor sums = mb.sums.defined() ? mb.sums.At(sums_row_) : Tensor();
  router_.Forward(ctx, mb, x, mb.training ? counts_ : Tensor(), forced, sums, s.router);
  ctx.Settle();  // plans and transfers take turns as well: they share the peers' flags
  if (RoundDispatcher* rounds = Rounds(mb)) {
    rounds->PlanRounds(ctx.stream, s.router.dispatched, &s.handle, *mb.saved, ctx.work);
  } else {
    dispatcher_->Plan(ctx.stream, s.router.dispatched, mb.overflow, &s.handle, *mb.saved, ctx.work);
  }
}

void MoeLayer::RouteBackward(Context& ctx, MicroBatch& mb, MoeSaved& s) const {
  ctx.Join();                                               // s.dx, s.dw_TK
  router_.BackwardInput(ctx, mb, s.dw_TK, s.dx, s.router);  // dx += dlogits Wr
}

void MoeLayer::RouteBackwardWeight(Context& ctx, MicroBatch& mb, MoeSaved& s) const {
  router_.BackwardWeight(ctx, mb, s.router);
}

// ---- dispatch: x_TD, w_TK -> x_RD, w_R, beside the shared expert. Adjoint, a combine: dx_TD = shared^T +
// sum of t's rows in dx_RD, beside the weight gradients of the routed experts (it begins in ExpertsBackward)

void MoeLayer::DispatchForward(Context& ctx, MicroBatch& mb, const Tensor& y, MoeSaved& s) const {
  const int64_t R = dispatcher_->window_rows(mb.T()), D = s.x.cols();
  s.x_RD = AllocateDispatched(ctx, *mb.saved, "moe/x_RD", R, D);
  s.w_R = mb.saved->Allocate("moe/w_R", ctx.types.accum, {R});
  // What is sent may lie in scratch: nothing else is put there before Join or, in turns, the next
  // turn, which waits.
  ArenaScope scope(ctx.work);
  if (!Rounds(mb)) {
    const Tensor x = PackForDispatch(ctx, s.x, ctx.work);
    const CommunicationStream side = ctx.Fork();
    dispatcher_->Dispatch(side.stream, s.handle, x, s.router.w, s.x_RD, s.w_R, *side.work);
  }
  if (has_shared_) shared_.Forward(ctx, mb, s.x, y, s.shared);
  ctx.Join();
}

void MoeLayer::DispatchBackward(Context& ctx, MicroBatch& mb, MoeSaved& s) const {
  if (RoundDispatcher* rounds = Rounds(mb))
    BackwardInRounds(ctx, mb, *rounds, experts_, SharedGradient(s), s);
}

// ---- experts: x_RD, w_R -> y_RD

// The capacity of a micro-batch from each rank of the group.
int64_t MoeLayer::PaddedRows(const MicroBatch& mb) const {
  return pad_ ? router_.Capacity(mb) * (router_.num_experts() / dispatcher_->local_experts()) : 0;
}

void MoeLayer::ExpertsForward(Context& ctx, MicroBatch& mb, MoeSaved& s) const {
  experts_.Save(ctx, mb, s.x_RD, s.w_R, s.handle.offsets, PaddedRows(mb), s.experts);
  s.window = mb.saved->Mark();
  s.y_RD = mb.saved->Allocate("moe/y_RD", ctx.types.compute, {s.x_RD.dim(0), s.x.cols()});
  if (!Rounds(mb)) experts_.Forward(ctx, mb, s.y_RD, s.experts);
}

void MoeLayer::ExpertsBackward(Context& ctx, MicroBatch& mb, MoeSaved& s) const {
  ctx.Join();  // s.dy_RD
  s.dx_RD = mb.saved->Allocate("moe/dx_RD", ctx.types.compute, {s.x_RD.dim(0), s.x.cols()});
  s.dw_R = mb.saved->Allocate("moe/dw_R", ctx.types.accum, s.w_R.shape());
  s.dw_TK = mb.saved->Allocate("moe/dw_TK", ctx.types.accum, s.router.w.shape());
  if (Rounds(mb)) return;
  experts_.BackwardInput(ctx, mb, s.dy_RD, s.dw_R, s.dx_RD, s.experts);
  const CommunicationStream side = ctx.Fork();
  dispatcher_->Combine(side.stream, s.handle, s.dx_RD, /*residual=*/{}, SharedGradient(s), s.dx, s.dw_R,
                       s.dw_TK, *side.work);
}

void MoeLayer::ExpertsBackwardWeight(Context& ctx, MicroBatch& mb, MoeSaved& s) const {
  if (!Rounds(mb))
    experts_.BackwardWeight(ctx, mb, s.experts, ctx.communication ? dispatcher_->multiprocessors() : 0);
}

// ---- combine: y_TD = residual + shared + sum of t's rows in y_RD. Adjoint, a dispatch: dy_RD[r] =
// dy_TD[t], beside dx_TD = shared^T and the shared expert's weight gradients. ExpertsBackward waits
// for it; in turns the micro-batch's next turn, so that what it reads must last through
// CombineBackwardWeight either way

void MoeLayer::CombineForward(Context& ctx, MicroBatch& mb, const Tensor& residual, const Tensor& y,
                              MoeSaved& s) const {
  const Tensor addend = has_shared_ ? y : Tensor();
  RoundDispatcher* rounds = Rounds(mb);
  if (!mb.zero_routed_experts && rounds) {
    ForwardInRounds(ctx, mb, *rounds, experts_, residual, addend, y, s);
  } else if (!mb.zero_routed_experts) {
    // Nothing of this micro-batch is left to do meanwhile; of another there may be.
    const CommunicationStream side = ctx.turns ? ctx.Fork() : CommunicationStream{ctx.stream, &ctx.work};
    dispatcher_->Combine(side.stream, s.handle, s.y_RD, residual, addend, y, {}, {}, *side.work);
  } else if (has_shared_) {
    Add(ctx.stream, residual, y, y);
  } else {
    Copy(ctx.stream, residual, y);
  }
  mb.saved->Release(s.window);
}

void MoeLayer::CombineBackward(Context& ctx, MicroBatch& mb, const Tensor& dy, MoeSaved& s) const {
  YM_CHECK(!mb.zero_routed_experts, "zero_routed_experts is for evaluation only");
  s.dy = dy;
  s.dy_RD = AllocateDispatched(ctx, *mb.saved, "moe/dy_RD", s.x_RD.dim(0), s.x.cols());
  s.dx = mb.saved->Allocate("moe/dx", ctx.types.compute, s.x.shape());
  if (!Rounds(mb)) {
    const Tensor dy_sent = PackForDispatch(ctx, dy, *mb.saved);
    const CommunicationStream side = ctx.Fork();
    dispatcher_->Dispatch(side.stream, s.handle, dy_sent, /*w_TK=*/{}, s.dy_RD, /*w_R=*/{}, *side.work);
  }
  if (has_shared_) shared_.BackwardInput(ctx, mb, dy, s.dx, s.shared);
}

void MoeLayer::CombineBackwardWeight(Context& ctx, MicroBatch& mb, MoeSaved& s) const {
  if (has_shared_) shared_.BackwardWeight(ctx, mb, s.shared);
}

}  // namespace yardmaster
