// File: src/ops/router_capacity.h
//
// Capacity mode: an expert computes at most C = ceil(T K / E * factor) of the (token, expert) pairs of a
// micro-batch; the others are dropped, and their tokens keep the residual. Weights are those of the router
// before dropping: nothing is normalised again. Counted per micro-batch, never per rank's window, so that it
// does not depend on the layout of the experts.
//   probs      an expert keeps its C pairs of the largest weight; ties: the lower token
//   position   an expert keeps its C first tokens
// The adjoint is that of the router with dw = 0 for dropped pairs.
#pragma once

#include "src/device/arena.h"
#include "src/device/device.h"

namespace yardmaster {

enum class DropPolicy : uint8_t { kProbs, kPosition };

int64_t ExpertCapacity(int64_t tokens, int64_t top_k, int64_t num_experts, double factor);

struct RouterCapacityArgs {
  Tensor idx;  // int32 [T, K], ascending
  Tensor w;    // [T, K], accumulator type
  int64_t num_experts = 0;
  int64_t capacity = 0;  // C
  DropPolicy policy = DropPolicy::kProbs;
  Tensor kept_idx;      // int32 [T, K]: idx, -1 for dropped pairs: what is dispatched
  Tensor dropped = {};  // F64 [1]: += number of dropped pairs; undefined: not counted
};
void RouterCapacity(const Stream& stream, const RouterCapacityArgs& args, Arena& work);

}  // namespace yardmaster
