// File: src/ops/mla_rope_pack.h
//
// Packs MLA's projections into what attention takes and rotates the positional parts (RoFormer, arXiv 2104.09864; MLA:
// DeepSeek-V2, arXiv 2405.04434, section 2.1). N = qk_nope_head_dim, P = qk_rope_head_dim, Q = N + P, V = v_head_dim.
//   q_THQ[t,h]  = [ q[t,h,:N] | rotate(q[t,h,N:], pos_t) ]
//   k_THQ[t,h]  = [ kv[t,h,:N] | rotate(k_rope[t], pos_t) ]    the rotated key part is shared by all heads
//   v_THV[t,h]  = kv[t,h,N:]
// Interleaved pairs: (x_2i, x_2i+1) -> (x_2i c - x_2i+1 s, x_2i s + x_2i+1 c) with (c, s) = table[pos, i]. The table
// already holds YaRN's frequencies and its magnitude factor (nn/rope.h), in the accumulator type.
#pragma once

#include "src/device/device.h"

namespace yardmaster {

struct MlaRopePackArgs {
  Tensor q;          // [T, H, Q]
  Tensor kv;         // [T, H, N + V]
  Tensor k_rope;     // [T, P], ld >= P
  Tensor positions;  // int32 [T]
  Tensor table;      // [max_positions, P/2, 2]: cos, sin
  Tensor q_out;      // [T, H, Q]; may be q itself
  Tensor k_out;      // [T, H, Q]
  Tensor v_out;      // [T, H, V]
};
void MlaRopePackForward(const Stream& stream, const MlaRopePackArgs& args);

// The adjoint: rotations transposed (angle negated), dk_rope[t] = sum_h of the rotated-back key parts, in head order.
struct MlaRopePackBackwardArgs {
  Tensor dq_out;     // [T, H, Q]
  Tensor dk_out;     // [T, H, Q]
  Tensor dv_out;     // [T, H, V]
  Tensor positions;
  Tensor table;
  Tensor dq;         // [T, H, Q]; may be dq_out itself
  Tensor dkv;        // [T, H, N + V]
  Tensor dk_rope;    // [T, P], ld >= P
};
void MlaRopePackBackward(const Stream& stream, const MlaRopePackBackwardArgs& args);

}  // namespace yardmaster
