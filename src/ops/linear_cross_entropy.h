// File: src/ops/linear_cross_entropy.h
//
// The output head and cross-entropy in one op, in chunks of tokens, so that logits [T, V] never exist at once:
//   z_tv = <x_t, head_v>;  loss_t = logsumexp_v z_tv - z_t,target;  targets of -1 do not count
// The gradient of the loss sum scaled by `grad_scale` (1 / valid tokens of the global batch, times a loss weight) is known
// in forward:  dz = grad_scale * (softmax(z) - onehot);  dx = dz head;  dhead = dz^T x + beta_head * dhead.
// cpu: F32 or F64; a target outside [-1, V) is a bug. cuda: BF16 (logits and their gradient in BF16, statistics in FP32), F32,
// F64; such a target makes the loss NaN.
#pragma once

#include "src/device/arena.h"
#include "src/device/device.h"

namespace yardmaster {

struct LinearCrossEntropyArgs {
  Tensor x;                 // [T, D]
  Tensor head;              // [V, D]
  Tensor targets;           // int32 [T], -1: ignored
  double grad_scale = 1;
  Tensor device_scale = {};  // F64 [1]: grad_scale is multiplied by it; undefined: 1
  Tensor loss_sum;          // F64 [1]: += sum of the losses, in token order
  Tensor valid = {};        // int64 [1]: += number of counted tokens; undefined: not counted
  Tensor dx = {};           // [T, D], overwritten; undefined: no gradients (evaluation)
  Tensor dhead = {};        // [V, D], main gradient type; required with dx
  double beta_head = 0;
  Tensor logits = {};       // [T, V], written when given (parity, sampling)
  int64_t chunk_tokens = 1024;
};
void LinearCrossEntropy(const Stream& stream, const LinearCrossEntropyArgs& args, Arena& work);

}  // namespace yardmaster
