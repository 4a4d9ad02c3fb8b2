// File: src/ops/swiglu.h
//
// SwiGLU on a fused gate+up projection, each row weighted by its router weight:
//   a_rf = w_r * silu(g_rf) * u_rf,   gate_up_R2F = [g | u],  silu(z) = z / (1 + e^-z)
// The weight goes in here, before the down projection, so that combine is a plain sum and dw_r needs no second pass over
// the down projection's output.
#pragma once

#include "src/device/device.h"

namespace yardmaster {

// SwigluArgs::num_rows of ragged rows: offsets[L]; undefined without offsets (int64 [L + 1]).
inline Tensor NumRows(const Tensor& offsets) {
  return offsets.defined() ? offsets.Slice(offsets.dim(0) - 1, offsets.dim(0)) : Tensor();
}

struct SwigluArgs {
  Tensor gate_up;        // [R, 2F]
  Tensor w = {};         // [R] in the accumulator type, or undefined (all ones: the dense MLP)
  Tensor num_rows = {};  // int64 [1] in device memory: only these rows are touched; undefined: all R
  Tensor act;            // [R, F]
};
void SwigluForward(const Stream& stream, const SwigluArgs& args);

// dg = da * w * u * silu'(g);  du = da * w * silu(g);  dw_r = sum_f da_rf * silu(g_rf) * u_rf;
// silu'(z) = s (1 + z (1 - s)), s = 1 / (1 + e^-z). act, when given, is written again (recomputed, weighted) for the
// down projection's weight gradient.
struct SwigluBackwardArgs {
  Tensor dact;            // [R, F]
  Tensor gate_up;         // [R, 2F]
  Tensor w = {};          // [R]
  Tensor num_rows = {};   // int64 [1]
  Tensor dgate_up;        // [R, 2F]; may be gate_up itself
  Tensor dw = {};         // [R], accumulator type; required with w
  Tensor act = {};        // [R, F] or undefined
};
void SwigluBackward(const Stream& stream, const SwigluBackwardArgs& args);

}  // namespace yardmaster
