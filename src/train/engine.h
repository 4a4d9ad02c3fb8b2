// File: src/train/engine.h
//
// All device state of one rank and what is done to it: a training step (step.cc, one screen) and the loss of a
// micro-batch without training. Everything lives in named arenas whose sizes come from running the same code on the
// dry device first (Plan), so that nothing is allocated in a step and a run that does not fit is refused before step 1.
//
//   weights    parameters, buffers, RoPE tables
//   gradients  main gradients
//   optimizer  moments, partial sums of the norm
//   saved      what backward needs of the micro-batches in flight
//   workspace  scratch
//   step       batch, step state, schedules, counters
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/comm/ep/dispatcher.h"
#include "src/config/config.h"
#include "src/model/model.h"
#include "src/ops/step_control.h"
#include "src/optim/optimizer.h"

namespace yardmaster {

struct Groups {
  Communicator* world;
  Communicator* dp;
  Communicator* edp;
};

struct ArenaSize {
  std::string name;
  size_t bytes;
};

// The batch of one step on this rank, in host memory: [micro_batches, micro_batch_size * S].
struct HostBatch {
  int64_t micro_batches = 0;
  std::vector<int32_t> tokens, targets, positions, document_start;
};

struct StepReport {
  StepState state;
  std::vector<std::vector<int64_t>> load;  // [MoE layers][E], of this step, summed over dp
  int64_t valid = 0;                       // counted tokens of this rank
};

enum class EngineMode { kTraining, kInference };  // inference: no gradients, no optimizer state

class Engine {
 public:
  // `sizes` as returned by Plan; empty: arenas only measure (dry device).
  Engine(EngineMode mode, const Config& config, const Groups& groups, Dispatcher* dispatcher, Device* device,
         const std::vector<ArenaSize>& sizes);

  // The bytes of every arena for training steps and evaluations of this config: the same code on the dry device.
  static std::vector<ArenaSize> Plan(EngineMode mode, const Config& config, const Groups& groups, Dispatcher* dispatcher);

  void Initialise(uint64_t seed);                       // a fresh run
  void Stage(const HostBatch& batch);                   // host -> device, before Step or Evaluate
  // One training step on the staged batch. `global_tokens`: tokens of the step over all ranks.
  void Step(int64_t micro_batches, int64_t global_tokens);
  // Adds the losses of the staged micro-batches to a sum and a count, over all ranks.
  void Evaluate(int64_t micro_batches, double* loss_sum, int64_t* valid, bool zero_routed_experts = false);
  // Logits of the first micro-batch staged, to host memory [T, V] in double.
  std::vector<double> Logits();

  StepReport Report();                                  // of the last step; waits for it
  void SetCounters(int64_t step, int64_t tokens, int64_t skipped);  // on resume
  std::vector<StateTensor> SavedState() const;          // what this rank writes
  std::vector<StateTensor> LoadedState() const;         // what this rank needs back
  void AfterLoad();                                     // masters were loaded: computes what follows from them
  std::vector<ArenaSize> HighWater() const;
  Registry registry() { return model_->registry(); }
  Device& device() { return *device_; }
  const Config& config() const { return config_; }
  int64_t max_micro_batches() const { return max_micro_batches_; }  // of a step, on this rank
  int64_t micro_batch_tokens() const { return config_.train.micro_batch_size * config_.train.sequence_length; }

 private:
  MicroBatch MicroBatchAt(int64_t index, double grad_scale, bool training);

  EngineMode mode_;
  Config config_;
  Groups groups_;
  Device* device_;
  Stream stream_;
  ComputeTypes types_;
  Arena weights_, gradients_, optimizer_arena_, saved_, work_, step_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;  // null in inference
  std::vector<MicroBatch> in_flight_{1};  // as many as the schedule has between forward and backward
  int64_t max_micro_batches_ = 0;
  Tensor tokens_, targets_, positions_, document_start_;  // int32 [max_micro_batches, T]
  Tensor state_;                                          // U8 [sizeof(StepState)]
  Tensor learning_rate_, bias_speed_;                     // U8 [sizeof(DeviceSchedule)]
  Tensor step_load_;                                      // int64 [MoE layers, E]: load of the last step
  StepAccumulators acc_;
};

}  // namespace yardmaster
