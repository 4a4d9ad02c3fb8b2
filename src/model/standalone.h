// File: src/model/standalone.h
//
// A model of one rank with memory of its own, for parity, tools and tests: no configuration file, no data
// set, no optimizer. One micro-batch of fixed size at a time. All memory is planned by a dry micro-batch and
// committed once.
#pragma once

#include <memory>
#include <vector>

#include "src/comm/ep/local_dispatcher.h"
#include "src/model/model.h"

namespace yardmaster {

struct StandaloneOptions {
  ComputeTypes types;
  int64_t B = 1, S = 1;
  bool gradients = true;  // false: evaluation only
  bool logits = false;    // room for [T, V]
  bool attend_across_documents = true;
  MoeConfig moe = {};
  double mtp_weight = 0.3;  // of the loss of multi-token prediction
  bool poison = false;  // tests: memory that was released reads as NaN (cpu)
  Implementations how = {};
};

class StandaloneModel {
 public:
  struct Bytes {
    size_t weights = 0, grads = 0, saved = 0, work = 0;
    bool operator==(const Bytes&) const = default;
  };

  // Throws ConfigError for a model that is not supported. Parameters hold nothing yet: InitialiseParameters
  // or ImportHf.
  StandaloneModel(const ModelConfig& config, const StandaloneOptions& options, Device& device);

  Model& model() { return *model_; }
  Registry registry() { return model_->registry(); }
  Context& context() { return ctx_; }
  MicroBatch& micro_batch() { return mb_; }
  Device& device() { return device_; }

  // T = B * S values each; a target of -1 does not count. Positions are 0..S-1 in every sequence. Sets
  // grad_scale to 1 / (counted targets), and mtp_scale alike.
  void SetBatch(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets);
  // [B, S]; only when documents are kept apart.
  void SetDocumentStart(const std::vector<int32_t>& document_start);

  void BeginStep();  // gradients are written anew, the loss starts at 0
  void Forward(const ForwardTaps* taps = nullptr);
  void Backward() { model_->RunBackward(ctx_, mb_); }
  double Evaluate();  // forward without gradients and load; the mean loss; BeginStep included

  double loss() const;  // mean over the counted tokens since BeginStep; waits
  int64_t valid() const;
  bool overflow() const;
  const StepAccumulators& accumulators() const { return acc_; }
  Tensor logits() const { return logits_; }  // [T, V], to be named in ForwardTaps
  const std::vector<Tensor>& mtp_logits() const { return mtp_logits_; }  // by depth, likewise
  double mtp_loss()
      const;  // mean over the counted positions and depths since BeginStep, of one micro-batch; waits
  Bytes planned() const { return planned_; }
  Bytes used() const;

 private:
  void Layout();
  void ScaleMtp();

  ModelConfig config_;
  StandaloneOptions options_;
  Device& device_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<Model> model_;
  Arena weights_, grads_, io_, saved_, work_;
  Context ctx_;
  MicroBatch mb_;
  StepAccumulators acc_;
  Tensor logits_;
  std::vector<Tensor> mtp_logits_;
  Tensor mtp_valid_;  // int64 [1], of the batch
  Bytes planned_;
};

}  // namespace yardmaster
