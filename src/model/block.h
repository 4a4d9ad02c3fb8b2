// File: src/model/block.h
//
// A decoder layer as a list of phases. h is the residual stream, one tensor per half block:
//   h_mid = h_in + attention(norm(h_in));   h_out = h_mid + mlp(norm(h_mid))
// dense: attention, mlp.   MoE: attention, route, dispatch, experts, combine (nn/moe/moe_layer.h).
// Forward walks phases() in order; backward in reverse, each phase BackwardInput then BackwardWeight.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "src/nn/mlp.h"
#include "src/nn/moe/moe_layer.h"
#include "src/nn/self_attention.h"

namespace yardmaster {

enum class Phase : uint8_t { kAttention, kMlp, kRoute, kDispatch, kExperts, kCombine };
const char* PhaseName(Phase phase);

// Of one micro-batch in one layer.
struct BlockSaved {
  size_t mark = 0;       // of mb.saved, below everything here
  size_t work_mark = 0;  // of ctx.work, from route to combine: mlp_x lies there where it is computed again
  Tensor h_in, h_mid,
      h_out;  // [T, D]; h_in belongs to the layer below, h_out may belong to the model (evaluation)
  RmsNormSaved attention_norm, mlp_norm;
  Tensor attention_x, mlp_x;  // [T, D], normalised; where they are not kept, of their pass alone
  SelfAttentionSaved attention;
  MlpSaved mlp;
  MoeSaved moe;
};

// The gradient on its way down: [T, D] buffers of the caller. dh_in may be dh_out.
struct BlockGradients {
  Tensor dh_out, dh_mid, dh_in;
};

class Block {
 public:
  Block(ParameterList& list, const ModelConfig& config, int64_t layer, ComputeTypes types,
        bool attend_across_documents, Dispatcher* dispatcher, const MoeConfig& moe);

  const std::vector<Phase>& phases() const { return phases_; }
  SelfAttention& attention() { return attention_; }
  MoeLayer* moe() { return moe_.get(); }  // null in a dense layer
  // One past this block's last parameter of the list.
  size_t parameters_end() const { return parameters_end_; }
  // The parameters of the list, [begin, end), whose gradients are complete when backward leaves this phase: those
  // of a half block when it leaves the half's first phase; else none.
  std::pair<size_t, size_t> CompletedBy(Phase phase) const;

  // The caller sets saved.h_in and saved.h_out.
  void Forward(Phase phase, Context& ctx, MicroBatch& mb, BlockSaved& saved) const;
  void BackwardInput(Phase phase, Context& ctx, MicroBatch& mb, const BlockGradients& g,
                     BlockSaved& saved) const;
  void BackwardWeight(Phase phase, Context& ctx, MicroBatch& mb, BlockSaved& saved) const;

 private:
  Tensor NormalisedAgain(Context& ctx, MicroBatch& mb, const RmsNorm& norm, const RmsNormSaved& saved) const;

  size_t parameters_begin_;  // before the modules: they add to the list as they are made
  size_t mlp_begin_ = 0, parameters_end_ = 0;
  std::vector<Phase> phases_;
  RmsNorm attention_norm_, mlp_norm_;
  SelfAttention attention_;
  std::unique_ptr<Mlp> mlp_;       // dense layers
  std::unique_ptr<MoeLayer> moe_;  // MoE layers
};

}  // namespace yardmaster
