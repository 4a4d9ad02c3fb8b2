#include "src/nn/moe/grouped_experts.h"

#include "src/ops/grouped_gemm.h"
#include "src/ops/swiglu.h"

namespace yardmaster {
namespace {

// How many rows there are, known to the device alone: offsets[L].
Tensor NumRows(const Tensor& offsets) { return offsets.Slice(offsets.dim(0) - 1, offsets.dim(0)); }

}  // namespace

GroupedExperts::GroupedExperts(ParameterList& list, const std::string& prefix, int64_t E, int64_t D,
                               int64_t F, int64_t begin, int64_t count, double init_std)
    : F_(F),
      w1_(list.AddExpert(prefix + ".gate_up_proj", {E, 2 * F, D}, begin, count, init_std)),
      w2_(list.AddExpert(prefix + ".down_proj", {E, D, F}, begin, count, init_std)) {}

void GroupedExperts::Save(Context& ctx, MicroBatch& mb, const Tensor& x, const Tensor& w,
                          const Tensor& offsets, ExpertsSaved& saved) const {
  saved.x = x;
  saved.w = w;
  saved.offsets = offsets;
  saved.gate_up = mb.saved->Allocate("experts/gate_up", ctx.types.compute, {x.dim(0), 2 * F_});
}

void GroupedExperts::Forward(Context& ctx, MicroBatch& /*mb*/, const Tensor& y, ExpertsSaved& saved) const {
  ArenaScope scope(ctx.work);
  const Tensor act = ctx.work.Allocate("experts/act", ctx.types.compute, {saved.x.dim(0), F_});
  GateUp(ctx, saved);
  SwigluForward(ctx.stream,
                {.gate_up = saved.gate_up, .w = saved.w, .num_rows = NumRows(saved.offsets), .act = act});
  GroupedGemmForward(ctx.stream, act, w2_->value, saved.offsets, y);
}

void GroupedExperts::GateUp(Context& ctx, const ExpertsSaved& saved) const {
  GroupedGemmForward(ctx.stream, saved.x, w1_->value, saved.offsets, saved.gate_up);
}

void GroupedExperts::BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dy, const Tensor& dw,
                                   const Tensor& dx, ExpertsSaved& saved) const {
  const int64_t R = dy.dim(0);
  saved.dy = dy;
  saved.act = mb.saved->Allocate("experts/act", ctx.types.compute, {R, F_});
  saved.dgate_up = mb.saved->Allocate("experts/dgate_up", ctx.types.compute, {R, 2 * F_});
  ArenaScope scope(ctx.work);
  const Tensor dact = ctx.work.Allocate("experts/dact", ctx.types.compute, {R, F_});
  GroupedGemmBackwardInput(ctx.stream, dy, w2_->value, saved.offsets, dact);
  SwigluBackward(ctx.stream, {.dact = dact,
                              .gate_up = saved.gate_up,
                              .w = saved.w,
                              .num_rows = NumRows(saved.offsets),
                              .dgate_up = saved.dgate_up,
                              .dw = dw,
                              .act = saved.act});
  GroupedGemmBackwardInput(ctx.stream, saved.dgate_up, w1_->value, saved.offsets, dx);
}

void GroupedExperts::BackwardWeight(Context& ctx, MicroBatch& /*mb*/, const ExpertsSaved& saved) const {
  GroupedGemmBackwardWeight(ctx.stream, saved.dy, saved.act, saved.offsets, w2_->TakeGradBeta(), w2_->grad);
  GroupedGemmBackwardWeight(ctx.stream, saved.dgate_up, saved.x, saved.offsets, w1_->TakeGradBeta(),
                            w1_->grad);
}

}  // namespace yardmaster
