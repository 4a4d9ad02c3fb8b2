// File: src/model/mtp.h
//
// A multi-token prediction module (DeepSeek-V3 technical report, section 2.2). Depth d, at position i of a
// sample:
//   x_i = We enorm(embedding of t_{i+d}) + Wh hnorm(p_i)          [We | Wh] = eh_proj [D, 2D]
//   h = block(x);   n = shared_head.norm(h);   the model's head predicts t_{i+d+1} from n_i
// p is the state below: of the main model for d = 1, of module d - 1 otherwise; with post_norm after the last
// norm there (the main model's norm, the module's shared_head.norm), with pre_norm before it. Embedding and
// head are the main model's: their gradients add up. Loss: the mean over the counted positions of all depths
// (ops/mtp_targets.h), times a weight. Names are the hub's: module d is layer num_hidden_layers + d - 1.
#pragma once

#include <memory>

#include "src/model/block.h"
#include "src/model/model.h"
#include "src/nn/embedding.h"
#include "src/nn/loss_head.h"

namespace yardmaster {

struct MtpSaved {
  size_t mark = 0;         // of mb.saved, below everything here
  Tensor inputs, targets;  // int32 [B, S]
  Tensor e, en, p, pn;     // [T, D]: embedding, its norm, the state below, its norm
  RmsNormSaved enorm, hnorm, norm;
  BlockSaved block;
  Tensor n, dn;  // [T, D]: the head's input and its gradient
};

class MtpModule {
 public:
  MtpModule(ParameterList& list, const ModelConfig& config, int64_t depth, ComputeTypes types,
            bool attend_across_documents, Dispatcher* dispatcher, const MoeConfig& moe,
            const Embedding* embedding, const LossHead* head);

  Block& block() { return *block_; }
  int64_t layer() const { return layer_; }
  // Adds to `valid` (int64 [1]) what counts in this micro-batch.
  void CountTargets(Context& ctx, const MicroBatch& mb, const Tensor& valid) const;

  // p [T, D], the caller's. The state for the next module is saved.n or saved.block.h_out. logits: [T, V] or
  // undefined.
  void Forward(Context& ctx, MicroBatch& mb, const Tensor& p, const Tensor& loss_sum, const Tensor& logits,
               MtpSaved& saved) const;
  // All gradients of the module. saved.dn holds that of n, by the loss and (post_norm) the module above;
  // dh_above that of h by the module above (pre_norm), or undefined. dp += (accumulate) or = the gradient of
  // p. `g` as in Block.
  void Backward(Context& ctx, MicroBatch& mb, const BlockGradients& g, const Tensor& dh_above,
                const Tensor& dp, bool accumulate, MtpSaved& saved) const;

 private:
  int64_t depth_, layer_, D_;
  const Embedding* embedding_;
  const LossHead* head_;
  RmsNorm enorm_, hnorm_;
  Parameter* eh_proj_;  // [D, 2D]
  std::unique_ptr<Block> block_;
  RmsNorm norm_;
};

}  // namespace yardmaster
