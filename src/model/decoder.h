// File: src/model/decoder.h
//
// The decoder-only model of one pipeline stage that holds everything: embedding, blocks, loss head.
//
// Memory of a training micro-batch, a stack in mb.saved (bottom first):
//   h_0 | per layer: h_out, h_mid, what its phases save | the loss head's | per multi-token prediction
//   module: its own
// RunBackward pops it from the top. What one layer's backward needs comes and goes above the layer's own
// part; the gradient of the residual stream moves between two buffers in ctx.work. In evaluation the same
// forward runs, each layer's part is released at once, and h moves between two buffers at the bottom.
#pragma once

#include <memory>
#include <vector>

#include "src/model/block.h"
#include "src/model/model.h"
#include "src/model/mtp.h"
#include "src/nn/embedding.h"
#include "src/nn/loss_head.h"

namespace yardmaster {

class Decoder : public Model {
 public:
  Decoder(const ModelConfig& config, const ModelOptions& options, Dispatcher* dispatcher);

  Registry registry() override { return Registry(&list_); }
  void Allocate(Arena& weights, Device& device) override;
  void RunForward(Context& ctx, MicroBatch& mb, const StepAccumulators& acc,
                  const ForwardTaps* taps) override;
  void RunBackward(Context& ctx, MicroBatch& mb) override;
  void RunForwardInTurn(TwoContexts& ctx, const TwoMicroBatches& mb, const StepAccumulators& acc) override;
  void RunBackwardInTurn(TwoContexts& ctx, const TwoMicroBatches& mb) override;
  void CountMtpTargets(Context& ctx, const MicroBatch& mb, const Tensor& valid) const override;
  void UpdateRouterBias(Context& ctx, const Tensor& step_state) override;
  Tensor load_counts() const override { return counts_; }
  std::vector<Tensor> router_biases() const override;
  std::vector<int64_t> moe_layers() const override { return moe_layers_; }

 private:
  struct Flight;
  // Where a pass is: before which phase of which layer. A pass is a walk over steps_, backward in reverse.
  struct Step {
    size_t layer, phase;
  };
  // The pieces of a pass, in order; of two micro-batches one piece may come between two of the other.
  Flight& BeginForward(Context& ctx, MicroBatch& mb, const StepAccumulators& acc) const;
  void ForwardStep(Context& ctx, MicroBatch& mb, const ForwardTaps* taps, Step at, Flight& flight) const;
  void FinishForward(Context& ctx, MicroBatch& mb, const StepAccumulators& acc, const ForwardTaps* taps,
                     Flight& flight) const;
  Flight& BeginBackward(Context& ctx, MicroBatch& mb) const;
  void BackwardStep(Context& ctx, MicroBatch& mb, Step at, Flight& flight) const;
  void FinishBackward(Context& ctx, MicroBatch& mb, Flight& flight) const;
  // Whether the step leaves something on the communication stream, so that a turn ends with it.
  bool Forks(Step at, bool backward) const;
  void MtpForward(Context& ctx, MicroBatch& mb, const Tensor& h, const StepAccumulators& acc,
                  const ForwardTaps* taps, Flight& flight) const;
  // Leaves the gradient that reaches the main model in flight.head.dn (post_norm) or in dp (pre_norm).
  void MtpBackward(Context& ctx, MicroBatch& mb, const BlockGradients& g, const Tensor& dp,
                   Flight& flight) const;
  bool post_norm() const { return config_.mtp_input == "post_norm"; }

  ModelConfig config_;
  ModelOptions options_;
  ParameterList list_;
  Embedding embedding_;
  size_t embedding_end_;  // one past its parameters of the list, the first; the head's follow those of the blocks
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Step> steps_;  // of the blocks, in the order of forward
  LossHead head_;
  std::vector<std::unique_ptr<MtpModule>> mtp_;
  std::vector<MoeLayer*> moe_;  // of blocks_ and mtp_, as in moe_layers_
  std::vector<int64_t> moe_layers_;
  Tensor rope_table_;  // [max_positions, P/2, 2], accumulator type
  Tensor counts_;      // int64 [moe_layers, E]
};

}  // namespace yardmaster
