// File: src/nn/loss_head.h
//
// Final norm, output head and cross-entropy: loss = sum over t of -log softmax(norm(h_t) head^T)[target_t].
// The scale of the loss gradient is known in forward (MicroBatch::grad_scale), so that forward makes the
// head's gradient and that of its input in the same pass over the logits (ops/linear_cross_entropy.h);
// BackwardInput has the norm left.
#pragma once

#include "src/config/model_config.h"
#include "src/nn/linear.h"
#include "src/nn/rmsnorm.h"
#include "src/ops/linear_cross_entropy.h"

namespace yardmaster {

struct LossHeadSaved {
  RmsNormSaved norm;
  Tensor dn;  // [T, D]: gradient of the normalised input
};

class LossHead {
 public:
  // Parameters model.norm.weight [D] and lm_head.weight [V, D].
  LossHead(ParameterList& list, const ModelConfig& config);

  // h [T, D]. loss_sum F64 [1] and valid int64 [1]: +=. logits [T, V]: written when defined. n [T, D]:
  // receives the normalised state, for who needs it later; undefined: not kept.
  void Forward(Context& ctx, MicroBatch& mb, const Tensor& h, const Tensor& loss_sum, const Tensor& valid,
               const Tensor& logits, LossHeadSaved& saved, const Tensor& n = {}) const;
  // dresidual [T, D]: a gradient of h that came another way; undefined: none.
  void BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dh, const LossHeadSaved& saved,
                     const Tensor& dresidual = {}) const;

  // The head and the loss alone, of a normalised state how.x [T, D]; with how.dx the head's gradient too.
  // Fills in head, dhead and beta_head; the rest is the caller's.
  void Loss(Context& ctx, LinearCrossEntropyArgs how) const;

 private:
  RmsNorm norm_;
  Parameter* head_;  // [V, D]
};

}  // namespace yardmaster
