// File: src/model/model.h
//
// A model (of one pipeline stage): embedding, blocks, final norm, head, with explicit forward and backward. A
// block is a list of phases; RunForward and RunBackward walk them. The schedule above decides which
// micro-batch runs when.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "src/comm/ep/dispatcher.h"
#include "src/config/config.h"
#include "src/model/registry.h"
#include "src/nn/context.h"

namespace yardmaster {

struct ModelOptions {
  ComputeTypes types;
  int64_t max_positions = 0;  // rows of the RoPE table: the sequence length of the run
  bool attend_across_documents = true;
  MoeConfig moe = {};  // balance losses, capacity, forced routing
};

// What one step accumulates, in device memory, over its micro-batches.
struct StepAccumulators {
  Tensor loss_sum;  // F64 [1]
  Tensor sums;      // F64 [1 + MoE layers, kStepSums]: reported, not trained on
  Tensor valid;     // int64 [1]: tokens that counted
  Tensor overflow;  // int32 [1], sticky
};

// Read-only taps for parity and sampling; called during RunForward when set.
struct ForwardTaps {
  std::function<void(int64_t layer, const Tensor& h_TD)> hidden;  // output of a decoder layer
  std::function<void(int64_t layer, const Tensor& idx_TK, const Tensor& w_TK)> routing;
  Tensor logits = {};  // [T, V] to be written
  std::vector<Tensor> mtp_logits = {};  // by depth: [T, V] to be written (training); empty: none
  std::function<void(int64_t layer, const Tensor& scores_TE)> scores = {};  // the router's, before its bias
};

class Model {
 public:
  virtual ~Model() = default;
  virtual Registry registry() = 0;
  // Gives tables (RoPE) and counters their memory from `weights` and fills them; after AllocateParameters.
  virtual void Allocate(Arena& weights, Device& device) = 0;

  // Forward with loss; in training mode the head's and the loss's gradients are made here, since their scale
  // is known.
  virtual void RunForward(Context& ctx, MicroBatch& mb, const StepAccumulators& acc,
                          const ForwardTaps* taps = nullptr) = 0;
  // Input and weight gradients of everything that RunForward saved for mb. Afterwards mb.saved is empty
  // again.
  virtual void RunBackward(Context& ctx, MicroBatch& mb) = 0;
  // The same for two micro-batches in training, which take turns within every layer, so that
  // dispatch and combine of one run beside the computation of the other. Each has its own arenas
  // (ctx.work, mb.saved). To every sum the first micro-batch's part is added first: the bits are
  // those of one after the other, but for the embedding's gradient with multi-token prediction, to
  // which each micro-batch adds twice and here in another order.
  using TwoContexts = std::array<Context, 2>;
  using TwoMicroBatches = std::array<MicroBatch*, 2>;
  virtual void RunForwardInTurn(TwoContexts& ctx, const TwoMicroBatches& mb, const StepAccumulators& acc) = 0;
  virtual void RunBackwardInTurn(TwoContexts& ctx, const TwoMicroBatches& mb) = 0;
  // Adds to `valid` (int64 [1]) the targets of multi-token prediction that count in this micro-batch. Their
  // number in the global batch makes MicroBatch::mtp_scale, before the first forward. No-op for a model
  // without modules.
  virtual void CountMtpTargets(Context& ctx, const MicroBatch& mb, const Tensor& valid) const = 0;
  // From the integer counts of the step to every router bias; reads StepState (ops/step_control.h).
  virtual void UpdateRouterBias(Context& ctx, const Tensor& step_state) = 0;

  // Device memory of this step's load by MoE layer, int64 [moe_layers, E] (zeroed by UpdateRouterBias), for
  // metrics.
  virtual Tensor load_counts() const = 0;
  virtual std::vector<Tensor> router_biases() const = 0;  // by MoE layer, [E]; empty: the routers have none
  virtual std::vector<int64_t> moe_layers() const = 0;  // modules of multi-token prediction last

 protected:
  Model() = default;
};

// Dispatchers are made by the runtime (they depend on the communicator); one per model, shared by its layers.
std::unique_ptr<Model> MakeModel(const ModelConfig& config, const ModelOptions& options,
                                 Dispatcher* dispatcher);

}  // namespace yardmaster
