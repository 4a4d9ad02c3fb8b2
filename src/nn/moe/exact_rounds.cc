#include "src/nn/moe/exact_rounds.h"

#include "src/nn/moe/dispatched_rows.h"
#include "src/nn/moe/moe_layer.h"

namespace yardmaster {
namespace {

// One row for each (token, expert), in send order: results, and what dispatch carries.
Tensor SendOrder(Context& ctx, const char* what, const MoeSaved& s) {
  return ctx.work.Allocate(what, s.x.dtype(), {s.router.w.elements(), s.x.cols()});
}
Tensor SendOrderOfDispatched(Context& ctx, const char* what, const MoeSaved& s) {
  return AllocateDispatched(ctx, ctx.work, what, s.router.w.elements(), s.x.cols());
}

}  // namespace

void ForwardInRounds(Context& ctx, MicroBatch& mb, RoundDispatcher& dispatcher, const GroupedExperts& experts,
                     const Tensor& residual, const Tensor& addend, const Tensor& y, MoeSaved& s) {
  ArenaScope scope(ctx.work);
  const Tensor rows = SendOrder(ctx, "rounds/rows", s);  // x on its way there, y on its way back
  const bool quantised = ctx.types.recipe.quantised_dispatch;
  const Tensor x = quantised ? SendOrderOfDispatched(ctx, "rounds/x", s) : rows;
  const Tensor w = ctx.work.Allocate("rounds/w", ctx.types.accum, {s.router.w.elements()});
  dispatcher.Pack(ctx.stream, s.handle, PackForDispatch(ctx, s.x, ctx.work), s.router.w, x, w);
  for (int64_t r = 0; r < dispatcher.NumRounds(s.handle); ++r) {
    dispatcher.Send(ctx.stream, s.handle, r, x, s.x_RD);
    dispatcher.Send(ctx.stream, s.handle, r, w, s.w_R);
    experts.Forward(ctx, mb, s.y_RD, s.experts);
    dispatcher.Return(ctx.stream, s.handle, r, s.y_RD, rows);
  }
  dispatcher.Unpack(ctx.stream, s.handle, rows, residual, addend, y, {}, {});
}

void BackwardInRounds(Context& ctx, MicroBatch& mb, RoundDispatcher& dispatcher,
                      const GroupedExperts& experts, const Tensor& addend, MoeSaved& s) {
  ArenaScope scope(ctx.work);
  const bool quantised = ctx.types.recipe.quantised_dispatch;
  const Tensor x = SendOrderOfDispatched(ctx, "rounds/x", s);
  const Tensor rows = SendOrder(ctx, "rounds/rows", s);  // dy on its way there, dx on its way back
  const Tensor dy = quantised ? SendOrderOfDispatched(ctx, "rounds/dy", s) : rows;
  const Tensor w = ctx.work.Allocate("rounds/w", ctx.types.accum, {s.router.w.elements()});  // and dw
  dispatcher.Pack(ctx.stream, s.handle, PackForDispatch(ctx, s.x, ctx.work), s.router.w, x, w);
  dispatcher.Pack(ctx.stream, s.handle, PackForDispatch(ctx, s.dy, ctx.work), {}, dy, {});
  for (int64_t r = 0; r < dispatcher.NumRounds(s.handle); ++r) {
    dispatcher.Send(ctx.stream, s.handle, r, x, s.x_RD);
    dispatcher.Send(ctx.stream, s.handle, r, w, s.w_R);
    dispatcher.Send(ctx.stream, s.handle, r, dy, s.dy_RD);
    ArenaScope round(*mb.saved);
    experts.GateUp(ctx, s.experts);
    experts.BackwardInput(ctx, mb, s.dy_RD, s.dw_R, s.dx_RD, s.experts);
    experts.BackwardWeight(ctx, mb,
                           s.experts);  // nothing, or zeros in the first round, for experts of other rounds
    dispatcher.Return(ctx.stream, s.handle, r, s.dx_RD, rows);
    dispatcher.Return(ctx.stream, s.handle, r, s.dw_R, w);
  }
  dispatcher.Unpack(ctx.stream, s.handle, rows, /*residual=*/{}, addend, s.dx, w, s.dw_TK);
}

}  // namespace yardmaster
