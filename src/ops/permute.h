// File: src/ops/permute.h
//
// The local half of dispatch and combine: token rows to expert-major rows and back, by counting and prefix sums in token
// order, so that slots never depend on timing. One rank is a world of one: comm/ep uses nothing else there.
#pragma once

#include "src/device/arena.h"
#include "src/device/device.h"

namespace yardmaster {

// For experts [expert_begin, expert_begin + L): rows of an expert are its tokens in ascending order.
struct PermutePlanArgs {
  Tensor idx;                 // int32 [T, K]
  int64_t expert_begin = 0;
  Tensor offsets;             // int64 [L + 1]: expert l owns rows [offsets[l], offsets[l + 1])
  Tensor slot;                // int64 [T, K]: row of the pair, or -1 when its expert is not local
  Tensor source;              // int64 [R]: pair index t * K + k of each row; rows beyond offsets[L]: untouched
};
// If the rows exceed R (= source.dim(0)), offsets are clamped to R, pairs beyond get slot -1 and overflow[0] = 1.
void PermutePlan(const Stream& stream, const PermutePlanArgs& args, const Tensor& overflow /* int32 [1], sticky */, Arena& work);

// x_RD[r] = x_TD[source[r] / K];  w_R[r] = w_TK[source[r]] when w is given. Only rows < offsets[L]. With the
// plan's slot [T, K] the cuda device goes through the tokens and reads each once; the same values.
struct PermuteArgs {
  Tensor x_TD, w_TK = {}, source, offsets, x_RD, w_R = {};
  int64_t top_k = 1;
  Tensor slot = {};
};
void Permute(const Stream& stream, const PermuteArgs& args);

// y_TD[t] = residual[t] + addend[t] + sum over k ascending of y_RD[slot[t, k]], added in the accumulator type and rounded
// once; dw_TK[t, k] = dw_R[slot[t, k]] when given (0 where slot is -1). It is the adjoint of Permute, and Permute of it.
struct UnpermuteArgs {
  Tensor y_RD, slot, dw_R = {};
  Tensor residual = {}, addend = {};  // [T, D] or undefined; may be y_TD itself
  Tensor y_TD, dw_TK = {};
};
void Unpermute(const Stream& stream, const UnpermuteArgs& args);

}  // namespace yardmaster
