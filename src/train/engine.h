// File: src/train/engine.h
//
// All device state of one rank and what is done to it: a training step (step.cc, one screen) and
// the loss of a micro-batch without training. Everything lives in named arenas whose sizes come
// from running the same code on the dry device first (Plan), so that nothing is allocated in a step
// and a run that does not fit is refused before step 1.
//
//   weights    parameters, buffers, RoPE tables
//   gradients  main gradients
//   optimizer  moments, partial sums of the norm
//   saved      what backward needs of the micro-batches in flight
//   workspace  scratch
//   step       batch, step state, schedules, counters
//   exchange   scratch of dispatch and combine where they have a stream of their own
//   second ... saved and workspace of the second of two micro-batches in turn
//   (runtime.two_batch_overlap)
//
// With several ranks (runtime.overlap) up to two streams work beside the first: with expert
// parallelism one for dispatch and combine (nn/moe/moe_layer.cc), and one for gradients and
// weights: it reduces those of the last micro-batch layer by layer as backward leaves them, and
// gathers dense weights while the experts' are updated. The bits do not change. The cpu device does
// the same on its one stream.
//
// On a device that records (CUDA graphs) a step is enqueued as one replay. What differs from one
// step to the next lies in device memory: the batch, counts and offsets, the state with step and
// tokens, schedules. What the host gives, the number of micro-batches and of tokens, belongs to the
// recording: when it changes (a batch ramp), one step runs eagerly and the next is recorded anew.
// Exact replays, timed steps and runs with a hook in the step are eager.
//
// The host need not look at a step before it enqueues the next: its batch is copied in the stream's
// order, and what each step reports is copied to host memory of its own, until TakeReports. Once a
// dispatch window was too small, this step and all that follow skip themselves (the overflow flag
// is sticky) until the host has looked; it then runs them again, the first one in exact mode.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/comm/ep/dispatcher.h"
#include "src/config/config.h"
#include "src/device/timeline.h"
#include "src/model/model.h"
#include "src/ops/step_control.h"
#include "src/optim/optimizer.h"
#include "src/parallel/schedule.h"

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
  StepTimes times;                         // of a timed step (TimeNextStep); empty otherwise
  std::vector<std::vector<int64_t>> load;  // [MoE layers][E], of this step, summed over dp
  double mtp_loss = 0;                     // mean over the counted positions and depths; 0: none
  // Least and largest router bias after this step, by MoE layer that has one.
  std::vector<std::pair<double, double>> bias_range;
  std::vector<std::vector<double>> sums;   // [MoE layers][kStepSums] (model/model.h), over the global batch
  int64_t rows_needed = 0;  // by the fullest dispatch window of all layers, micro-batches and ranks
};

enum class EngineMode { kTraining, kInference };  // inference: no gradients, no optimizer state

class Engine {
 public:
  // `sizes` as returned by Plan; empty: arenas only measure (dry device). `dispatch_memory`: where the arenas
  // lie that dispatch moves rows between, if not in the device's own memory (Runtime::dispatch_memory).
  Engine(EngineMode mode, const Config& config, const Groups& groups, Dispatcher* dispatcher, Device* device,
         const std::vector<ArenaSize>& sizes, Device* dispatch_memory = nullptr);

  // The bytes of every arena for training steps and evaluations (inference: and Logits) of this config on a
  // device of `kind`: the same code on the dry device.
  static std::vector<ArenaSize> Plan(EngineMode mode, const Config& config, const Groups& groups,
                                     Dispatcher* dispatcher, DeviceKind kind);

  void Initialise(uint64_t seed);      // a fresh run
  // host -> device, before Step or Evaluate; behind the steps that were enqueued before.
  void Stage(const HostBatch& batch);
  // One training step on the staged batch. `global_tokens`: tokens of the step over all ranks. `exact`:
  // dispatch in as many rounds as the windows need (nn/moe/exact_rounds.h); such a step never overflows. At
  // most ep.overflow_check_every_n_steps + 1 steps whose reports are not taken.
  void Step(int64_t micro_batches, int64_t global_tokens, bool exact = false);
  void TimeNextStep() { time_next_ = true; }  // its ops; the times come with its report
  // Whether the last step was a replay, and how many recordings were made.
  bool replayed() const { return replayed_; }
  int64_t recordings() const { return recordings_; }
  // Adds the losses of the staged micro-batches to a sum and a count, over all ranks. A load that does not
  // fit is evaluated again in exact mode at once.
  void Evaluate(int64_t micro_batches, double* loss_sum, int64_t* valid, bool zero_routed_experts = false);
  // Logits of the first micro-batch staged, to host memory [T, V] in double.
  std::vector<double> Logits();

  // Of every step that is not reported yet, in order, but for the `running` newest; waits for those that it
  // reports. With 0 running, clears the overflow flag: the steps behind one that overflowed have skipped
  // themselves, and must be taken with it or by another call.
  std::vector<StepReport> TakeReports(int64_t running = 0);
  int64_t exact_evaluations() const { return exact_evaluations_; }  // calls of Evaluate that needed rounds
  void SetCounters(int64_t step, int64_t tokens, int64_t skipped);  // on resume
  std::vector<StateTensor> SavedState() const;                      // what this rank writes
  std::vector<StateTensor> LoadedState() const;                     // what this rank needs back
  std::vector<ReplicaTensor> ReplicatedState() const;  // what must be the same wherever it is held
  void AfterLoad();  // masters were loaded: computes what follows from them
  std::vector<ArenaSize> HighWater();
  Registry registry() { return model_->registry(); }
  Model& model() { return *model_; }
  // Called in each step between the last backward and the reduction of the gradients, none of which is early then; on all
  // ranks or none. For faults (faults.h).
  void set_after_backward(std::function<void()> hook) { after_backward_ = std::move(hook); }
  // Called when a replay of a step was enqueued; for the watchdog (Runtime::NoteReplay).
  void set_after_replay(std::function<void()> hook) { after_replay_ = std::move(hook); }
  Device& device() { return *device_; }
  const Config& config() const { return config_; }
  int64_t max_micro_batches() const { return max_micro_batches_; }  // of a step, on this rank
  int64_t micro_batch_tokens() const {
    return config_.train.micro_batch_size * config_.train.sequence_length;
  }

 private:
  Context MakeContext(bool second = false);  // second: of the second of two micro-batches in turn
  std::vector<Arena*> Arenas();
  std::vector<Task> StepSchedule(int64_t micro_batches, bool exact) const;
  bool Replays(bool exact) const;
  void EnqueueStep(int64_t micro_batches, int64_t global_tokens, bool exact);
  MicroBatch MicroBatchAt(int64_t index, double grad_scale, bool training);
  void PrepareMtp(
      int64_t micro_batches);  // the loss scale of multi-token prediction, from what counts on all ranks
  void LayOutReports();
  void CollectReport();  // part of the step: report_ from what lies in many places, but the biases
  void CollectBiases();  // after their update
  StepReport ReadReport(const int64_t* words) const;
  void KeepReport();     // of the step that was just enqueued, until the host looks
  void EvaluateOnce(int64_t micro_batches, bool zero_routed_experts, bool exact);

  EngineMode mode_;
  Config config_;
  Groups groups_;
  Dispatcher* dispatcher_;
  Device* device_;
  Stream stream_;
  ComputeTypes types_;
  Implementations how_;
  Arena weights_, gradients_, optimizer_arena_, saved_, work_, step_, exchange_;
  struct SecondInTurn {  // of the second micro-batch, with runtime.two_batch_overlap
    explicit SecondInTurn(Device* device) : saved("second saved", device), work("second work", device) {}
    Arena saved, work;
  };
  std::unique_ptr<SecondInTurn> second_;
  std::optional<CommunicationStream> communication_;  // dispatch and combine
  std::optional<Stream> reductions_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;  // null in inference
  std::vector<MicroBatch> in_flight_;  // as many as the schedule has between forward and backward
  int64_t max_micro_batches_ = 0;
  // int32 [max_micro_batches, 4, T]: tokens, targets, positions, first token of the document
  Tensor batch_;
  std::vector<int32_t> staged_;  // the same on the host
  Tensor state_;                                          // U8 [sizeof(StepState)]
  Tensor learning_rate_, bias_speed_;                     // U8 [sizeof(DeviceSchedule)]
  Tensor mtp_weight_, mtp_valid_, mtp_scale_;  // DeviceSchedule; int64 [1] and F64 [1], of the global batch
  StepAccumulators acc_;
  Tensor rows_needed_;  // int64 [1], of the current step
  // What a step reports, in one piece of int64 words: report_ holds the last step's, host_reports_ those that
  // are not taken yet, in turn. Parts of report_: StepState as words, the load [MoE layers, E], rows needed
  // [1], sums F64 [1 + MoE layers, kStepSums], targets of multi-token prediction [1], biases F64 [layers that
  // have one, E].
  Tensor report_;
  Tensor report_state_, report_load_, report_rows_needed_, report_sums_, report_mtp_valid_, report_biases_;
  std::vector<std::unique_ptr<HostCopy>> host_reports_;
  int64_t first_kept_ = 0, kept_ = 0;  // steps: reported, and not reported yet
  struct StepShape {
    int64_t micro_batches = 0, global_tokens = 0;
    bool operator==(const StepShape&) const = default;
  };
  StepShape shape_;                       // of recording_, or of the eager step that goes before it
  std::unique_ptr<Recording> recording_;  // null: the next step of shape_ is recorded
  bool replayed_ = false, time_next_ = false;
  int64_t recordings_ = 0;
  std::unique_ptr<Timeline> timeline_;
  int64_t timed_ = -1;  // which step was timed
  int64_t exact_evaluations_ = 0;
  std::function<void()> after_backward_, after_replay_;
};

}  // namespace yardmaster
