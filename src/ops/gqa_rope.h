// File: src/ops/gqa_rope.h
//
// Rotary positions of grouped-query attention, in place (RoFormer, arXiv 2104.09864), in the half-split order of Hugging
// Face's Llama, Qwen and Mixtral code: with (c, s) = table[pos, i], i < Q/2, the pair is (x_i, x_i+Q/2):
//   (x_i, x_i+Q/2) -> (x_i c - x_i+Q/2 s, x_i s + x_i+Q/2 c)
// The adjoint is the same with the angle negated. The table is that of nn/rope.h, in the accumulator type.
#pragma once

#include "src/device/device.h"

namespace yardmaster {

struct GqaRopeArgs {
  Tensor q;          // [T, H, Q], rotated in place
  Tensor k;          // [T, G, Q], rotated in place
  Tensor positions;  // int32 [T]
  Tensor table;      // [max_positions, Q/2, 2]: cos, sin
};
void GqaRopeForward(const Stream& stream, const GqaRopeArgs& args);
void GqaRopeBackward(const Stream& stream, const GqaRopeArgs& gradients);  // q, k: dq, dk

}  // namespace yardmaster
