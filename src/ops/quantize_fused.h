// File: src/ops/quantize_fused.h
//
// Quantised copies (ops/quantize.h) of activations that are made on the way and never stored in high
// precision:
//   weighted SwiGLU (ops/swiglu.h)  act [R, F] = w * silu(g) * u
//   RMSNorm (ops/rmsnorm.h)         y [R, D] = h * rstd * weight, from the rstd that forward kept
// The copies are those of the activation rounded to the work type (BF16 on cuda, F32 on cpu): the same bytes
// as the two ops one after the other. On cpu they are that, with the activation in `work`.
#pragma once

#include "src/device/arena.h"
#include "src/ops/quantize.h"

namespace yardmaster {

struct QuantizeSwigluArgs {
  QuantFormat format;
  Tensor gate_up;       // [R, 2F] BF16 on cuda, F32 on cpu
  Tensor w = {};        // F32 [R] or undefined
  Tensor offsets = {};  // int64 [L + 1]
  Quantized rows = {};  // codes [R, F]
  Quantized cols = {};  // codes [F, PaddedRows(R, L)]
};
void QuantizeSwiglu(const Stream& stream, const QuantizeSwigluArgs& args, Arena& work);

struct QuantizeNormedArgs {
  QuantFormat format;
  Tensor h;       // [R, D], ld >= D
  Tensor rstd;    // F32 [R]
  Tensor weight;  // [D]
  Tensor offsets = {};
  Quantized rows = {};  // codes [R, D]
  Quantized cols = {};  // codes [D, PaddedRows(R, L)]
};
void QuantizeNormed(const Stream& stream, const QuantizeNormedArgs& args, Arena& work);

}  // namespace yardmaster
