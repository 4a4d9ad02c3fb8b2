// File: src/nn/moe/exact_rounds.h
//
// The MoE layer in exact mode (MicroBatch::exact): a load that does not fit into the dispatch windows passes
// them in rounds over the local experts (comm/ep/round_dispatcher.h).
//   forward:   x -> send order;  per round: dispatch -> experts -> back to send order;  then one sum for each
//   token backward:  x, dy -> send order;  per round: dispatch both, gate and up again, input and weight
//   gradients, back;  then
//              one sum for each token
// The windows of MoeSaved (x_RD, w_R, gate_up, ...) are those of an ordinary step and hold one round after
// the other: backward dispatches x again instead of keeping it. Where every expert fits into a window the
// bits are those of a step with ample windows; an expert in chunks adds its weight gradient, and may
// multiply, in another order.
#pragma once

#include "src/comm/ep/round_dispatcher.h"
#include "src/nn/context.h"

namespace yardmaster {

class GroupedExperts;
struct MoeSaved;

// y = residual + addend + routed experts(s.x).
void ForwardInRounds(Context& ctx, MicroBatch& mb, RoundDispatcher& dispatcher, const GroupedExperts& experts,
                     const Tensor& residual, const Tensor& addend, const Tensor& y, MoeSaved& s);
// From s.dy: s.dx = addend + what the routed experts give back, s.dw_TK, and the experts' weight gradients.
void BackwardInRounds(Context& ctx, MicroBatch& mb, RoundDispatcher& dispatcher,
                      const GroupedExperts& experts, const Tensor& addend, MoeSaved& s);

}  // namespace yardmaster
