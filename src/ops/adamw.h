// File: src/ops/adamw.h
//
// AdamW with decoupled weight decay (Loshchilov & Hutter, arXiv 1711.05101), many tensors in one op. Learning rate, step
// number, clip factor and verdict are read from StepState in device memory; a bad verdict leaves everything untouched.
//   g' = clip * g;  m = b1 m + (1 - b1) g';  v = b2 v + (1 - b2) g'^2;  t = state.step + 1
//   p = p - lr * decay * p - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
// This is torch.optim.AdamW's order: decay first. Moments are stored in F32, BF16 (rounded to nearest) or F64.
#pragma once

#include <vector>

#include "src/device/device.h"
#include "src/ops/quantize.h"

namespace yardmaster {

struct AdamWTensor {
  Tensor master;        // F32 (F64 when computing in F64)
  Tensor weight = {};   // the copy that the model computes with (BF16), rewritten; undefined or == master: none
  Tensor grad;          // main gradient
  Tensor m, v;          // moments
  double weight_decay = 0;
  // Of a whole weight, [L, N, K] or [N, K]: 8-bit copies, rewritten too, of the master (on cuda rounded to BF16
  // first, the bits of QuantizeWeights from a BF16 weight). Then `weight` is undefined.
  WeightCopies copies = {};
};

struct AdamWHyper {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
};

void AdamWMulti(const Stream& stream, const std::vector<AdamWTensor>& tensors, const AdamWHyper& hyper, const Tensor& state);

}  // namespace yardmaster
