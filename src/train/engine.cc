#include "src/train/engine.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "src/config/schedule.h"
#include "src/ops/elementwise.h"
#include "src/ops/mtp_targets.h"
#include "src/optim/device_schedule.h"

namespace yardmaster {
namespace {

ComputeTypes TypesOf(const Config& config, DeviceKind device) {
  const PrecisionConfig& precision = config.precision;
  if (precision.compute == "fp64") return {DType::kF64, DType::kF64};
  if (precision.compute == "fp32") return {DType::kF32, DType::kF32};
  if (precision.compute == "bf16") return {DType::kBF16, DType::kF32};
  QuantFormat format;
  format.kind = precision.compute == "fp8_block" ? QuantKind::kFp8Block : QuantKind::kMxfp8;
  format.power_of_two = precision.fp8_block_scales == "power_of_two";
  return {device == DeviceKind::kCuda ? DType::kBF16 : DType::kF32, DType::kF32,
          {format, /*quantised_dispatch=*/config.ep.payload == "recipe"}};
}

Implementations HowOf(const Config& config) {
  const std::string& gemm = config.moe.gemm;
  return {.grouped_gemm = gemm == "hopper"     ? GroupedGemmMode::kHopper
                          : gemm == "portable" ? GroupedGemmMode::kPortable
                          : gemm == "loop"     ? GroupedGemmMode::kLoop
                                               : GroupedGemmMode::kAuto,
          .attention = config.runtime.attention == "unfused" ? AttentionMode::kUnfused : AttentionMode::kAuto,
          .attention_workspace =
              static_cast<int64_t>(config.runtime.attention_workspace_gib * static_cast<double>(1 << 30)),
          .deterministic = config.runtime.deterministic,
          .recompute = config.runtime.recompute == "projections" ? Recompute::kProjections
                       : config.runtime.recompute == "norms"     ? Recompute::kNorms
                                                                 : Recompute::kNone,
          .saved_copies = config.runtime.saved_inputs == "recipe"};
}

void CopyStruct(const Stream& stream, const Tensor& to, const void* from, size_t bytes) {
  if (!stream.dry()) stream.device().CopyFromHost(to.data(), from, bytes);
}

constexpr int64_t kBatchParts = 4;

static_assert(sizeof(StepState) % sizeof(int64_t) == 0);
constexpr int64_t kStateWords = sizeof(StepState) / sizeof(int64_t);

// A field of the StepState in device memory, as a tensor of one element.
Tensor StateField(const Tensor& state, size_t offset, DType dtype) {
  return Tensor(state.data() ? static_cast<char*>(state.data()) + offset : nullptr, dtype, {1});
}

}  // namespace

Engine::Engine(EngineMode mode, const Config& config, const Groups& groups, Dispatcher* dispatcher,
               Device* device, const std::vector<ArenaSize>& sizes, Device* dispatch_memory)
    : mode_(mode),
      config_(config),
      groups_(groups),
      dispatcher_(dispatcher),
      device_(device),
      stream_(device),
      types_(TypesOf(config, device->target())),
      how_(HowOf(config)),
      weights_("weights", device),
      gradients_("gradients", device),
      optimizer_arena_("optimizer", device),
      saved_("saved", dispatch_memory ? dispatch_memory : device),
      work_("workspace", dispatch_memory ? dispatch_memory : device),
      step_("step", device),
      exchange_("exchange", dispatch_memory ? dispatch_memory : device) {
  if (config_.runtime.two_batch_overlap && mode == EngineMode::kTraining)
    second_ = std::make_unique<SecondInTurn>(dispatch_memory ? dispatch_memory : device);
  const bool several = groups.world->size() > 1 || groups.dp->size() > 1;
  if (config_.runtime.overlap && several) {
    if (dispatcher && dispatcher->local_experts() < config_.model.n_routed_experts)
      communication_ = CommunicationStream{device->AddStream(), &exchange_};
    if (mode == EngineMode::kTraining) reductions_ = device->AddStream();
  }
  if (!sizes.empty()) {
    const std::vector<Arena*> arenas = Arenas();
    YM_CHECK_EQ(arenas.size(), sizes.size());
    for (size_t i = 0; i < arenas.size(); ++i) {
      YM_CHECK(arenas[i]->name() == sizes[i].name);
      arenas[i]->Commit(sizes[i].bytes);
    }
  }
  const TrainConfig& train = config_.train;
  model_ = MakeModel(config_.model,
                     {types_, train.sequence_length, config_.data.attend_across_documents, config_.moe},
                     dispatcher);
  AllocateParameters(model_->registry().list(), types_, weights_,
                     mode == EngineMode::kTraining ? &gradients_ : nullptr);
  model_->Allocate(weights_, *device_);
  if (mode == EngineMode::kTraining) {
    optimizer_ = std::make_unique<Optimizer>(config_.optimizer, config_.parallel.zero, model_->registry(),
                                             types_, OptimizerGroups{groups.world, groups.dp, groups.edp},
                                             how_.grouped_gemm);
    optimizer_->Allocate(optimizer_arena_, stream_);
  }

  const int64_t largest_batch = static_cast<int64_t>(LargestScheduleValue(train.global_batch_size));
  max_micro_batches_ = largest_batch / (train.micro_batch_size * groups_.dp->size());
  // As many as two micro-batches show: more of them follow in the same way.
  in_flight_.resize(static_cast<size_t>(
      MaxInFlight(StepSchedule(std::min<int64_t>(max_micro_batches_, 2), /*exact=*/false), /*stage=*/0)));
  batch_ = step_.Allocate("batch", DType::kI32, {max_micro_batches_, kBatchParts, micro_batch_tokens()});
  state_ = step_.Allocate("state", DType::kU8, {static_cast<int64_t>(sizeof(StepState))});
  learning_rate_ =
      step_.Allocate("learning_rate", DType::kU8, {static_cast<int64_t>(sizeof(DeviceSchedule))});
  bias_speed_ = step_.Allocate("bias_speed", DType::kU8, {static_cast<int64_t>(sizeof(DeviceSchedule))});
  mtp_weight_ = step_.Allocate("mtp weight", DType::kU8, {static_cast<int64_t>(sizeof(DeviceSchedule))});
  mtp_valid_ = step_.Allocate("mtp valid", DType::kI64, {1});
  mtp_scale_ = step_.Allocate("mtp scale", DType::kF64, {1});
  acc_.sums = step_.Allocate("sums", DType::kF64,
                             {1 + static_cast<int64_t>(model_->moe_layers().size()), int64_t{kStepSums}});
  rows_needed_ = step_.Allocate("rows needed", DType::kI64, {1});
  if (dispatcher_) dispatcher_->set_rows_needed(rows_needed_);
  acc_.loss_sum = step_.Allocate("loss_sum", DType::kF64, {1});
  acc_.valid = step_.Allocate("valid", DType::kI64, {1});
  acc_.overflow = StateField(state_, offsetof(StepState, overflow), DType::kI32);
  LayOutReports();
  SetCounters(0, 0, 0);
  const DeviceSchedule rate = ToDeviceSchedule(config_.schedule.learning_rate, "schedule.learning_rate");
  const DeviceSchedule speed = ToDeviceSchedule(config_.moe.bias_update_speed, "moe.bias_update_speed");
  CopyStruct(stream_, learning_rate_, &rate, sizeof(rate));
  const DeviceSchedule mtp_weight = ToDeviceSchedule(config_.train.mtp_loss_weight, "train.mtp_loss_weight");
  CopyStruct(stream_, bias_speed_, &speed, sizeof(speed));
  CopyStruct(stream_, mtp_weight_, &mtp_weight, sizeof(mtp_weight));
}

std::vector<ArenaSize> Engine::Plan(EngineMode mode, const Config& config, const Groups& groups,
                                    Dispatcher* dispatcher, DeviceKind kind) {
  const std::unique_ptr<Device> dry = MakeDryDevice(kind);
  Engine engine(mode, config, groups, dispatcher, dry.get(), {});
  // The first micro-batch writes gradients and the others add to them; memory is the same from the second on.
  const int64_t micro_batches = std::min<int64_t>(engine.max_micro_batches_, 2);
  const bool rounds = dispatcher && dispatcher->rounds();
  for (const bool exact : {false, true}) {
    if (exact && !rounds) break;
    if (mode == EngineMode::kTraining)
      engine.Step(micro_batches, micro_batches * engine.micro_batch_tokens() * groups.dp->size(), exact);
    engine.EvaluateOnce(micro_batches, false, exact);
  }
  if (mode == EngineMode::kInference) engine.Logits();
  return engine.HighWater();
}

void Engine::Initialise(uint64_t seed) { InitialiseParameters(model_->registry().list(), seed, *device_); }

void Engine::Stage(const HostBatch& batch) {
  YM_CHECK_LE(batch.micro_batches, max_micro_batches_);
  const int64_t T = micro_batch_tokens();
  staged_.resize(static_cast<size_t>(batch.micro_batches * kBatchParts * T));
  for (int64_t m = 0; m < batch.micro_batches; ++m) {
    const auto part = [&](const std::vector<int32_t>& values, int64_t index) {
      const int64_t to = (m * kBatchParts + index) * T;
      std::copy_n(values.begin() + m * T, T, staged_.begin() + to);
      return to;
    };
    part(batch.tokens, 0);
    part(batch.targets, 1);
    const int64_t positions = part(batch.positions, 2), starts = part(batch.document_start, 3);
    if (!config_.data.reset_positions) continue;
    for (int64_t t = 0; t < T; ++t)
      staged_[static_cast<size_t>(positions + t)] -= staged_[static_cast<size_t>(starts + t)];
  }
  device_->StageFromHost(batch_.data(), staged_.data(), staged_.size() * sizeof(int32_t));
}

Context Engine::MakeContext(bool second) {
  return {stream_, second ? second_->work : work_, types_, how_, communication_ ? &*communication_ : nullptr};
}

MicroBatch Engine::MicroBatchAt(int64_t index, double grad_scale, bool training) {
  MicroBatch mb;
  mb.B = config_.train.micro_batch_size;
  mb.S = config_.train.sequence_length;
  const Tensor parts = batch_.At(index);
  mb.tokens = parts.At(0);
  mb.targets = parts.At(1);
  mb.positions = parts.At(2);
  mb.document_start = parts.At(3).Reshape({mb.B, mb.S});
  mb.grad_scale = grad_scale;
  mb.share = grad_scale * static_cast<double>(mb.T());
  mb.mtp_scale = mtp_scale_;
  mb.training = training;
  mb.saved = &saved_;
  return mb;
}

void Engine::Evaluate(int64_t micro_batches, double* loss_sum, int64_t* valid, bool zero_routed_experts) {
  EvaluateOnce(micro_batches, zero_routed_experts, /*exact=*/false);
  int32_t overflow = 0;
  device_->CopyToHost(&overflow, acc_.overflow.data(), sizeof(overflow));
  if (overflow) {
    Fill(stream_, 0, acc_.overflow);
    EvaluateOnce(micro_batches, zero_routed_experts, /*exact=*/true);
    ++exact_evaluations_;
  }
  if (dispatcher_) dispatcher_->ThrowIfFailed();
  double loss = 0;
  int64_t count = 0;
  device_->CopyToHost(&loss, acc_.loss_sum.data(), sizeof(loss));
  device_->CopyToHost(&count, acc_.valid.data(), sizeof(count));
  *loss_sum += loss;
  *valid += count;
}

// Leaves the sums over all ranks, and the overflow flag of any, in the accumulators.
void Engine::EvaluateOnce(int64_t micro_batches, bool zero_routed_experts, bool exact) {
  Context ctx = MakeContext();
  Fill(stream_, 0, acc_.loss_sum);
  Fill(stream_, 0, acc_.valid);
  for (int64_t i = 0; i < micro_batches; ++i) {
    MicroBatch mb = MicroBatchAt(i, 0, /*training=*/false);
    mb.zero_routed_experts = zero_routed_experts;
    mb.exact = exact;
    model_->RunForward(ctx, mb, acc_);
  }
  groups_.dp->AllReduceSum(stream_, acc_.loss_sum);
  groups_.dp->AllReduceSum(stream_, acc_.valid);
  groups_.world->AllReduceMax(stream_, acc_.overflow);
}

std::vector<double> Engine::Logits() {
  Context ctx = MakeContext();
  ArenaScope scope(work_);
  ForwardTaps taps;
  const Shape shape{micro_batch_tokens(), config_.model.vocab_size};
  taps.logits = work_.Allocate("logits", types_.compute, shape);
  MicroBatch mb = MicroBatchAt(0, 0, /*training=*/false);
  model_->RunForward(ctx, mb, acc_, &taps);
  const Tensor wide = work_.Allocate("logits in double", DType::kF64, shape);
  Copy(stream_, taps.logits, wide);
  std::vector<double> out(stream_.dry() ? 0 : static_cast<size_t>(wide.elements()));
  if (!out.empty()) device_->CopyToHost(out.data(), wide.data(), out.size() * sizeof(double));
  return out;
}

void Engine::PrepareMtp(int64_t micro_batches) {
  if (config_.model.num_nextn_predict_layers == 0) return;
  Context ctx = MakeContext();
  Fill(stream_, 0, mtp_valid_);
  for (int64_t i = 0; i < micro_batches; ++i)
    model_->CountMtpTargets(ctx, MicroBatchAt(i, 0, /*training=*/true), mtp_valid_);
  groups_.dp->AllReduceSum(stream_, mtp_valid_);
  MtpLossScale(stream_, {.valid = mtp_valid_, .schedule = mtp_weight_, .state = state_, .scale = mtp_scale_});
}

// The report of a step lies in one piece, so that a recorded step always writes to the same place and one
// copy brings it to the host.
void Engine::LayOutReports() {
  const int64_t layers = model_->load_counts().defined() ? model_->load_counts().dim(0) : 0;
  const int64_t load = layers * config_.model.n_routed_experts, sums = acc_.sums.elements();
  const int64_t biases = static_cast<int64_t>(model_->router_biases().size()),
                E = config_.model.n_routed_experts;
  const int64_t words = kStateWords + load + 1 + sums + 1 + biases * E;
  report_ = step_.Allocate("report", DType::kI64, {words});
  if (!stream_.dry()) {
    for (int64_t i = 0; i <= config_.ep.overflow_check_every_n_steps; ++i)
      host_reports_.push_back(device_->MakeHostCopy(static_cast<size_t>(report_.bytes())));
  }
  int64_t at = 0;
  const auto part = [&](int64_t n) {
    at += n;
    return report_.Slice(at - n, at);
  };
  report_state_ = part(kStateWords);
  report_load_ = part(load);
  report_rows_needed_ = part(1);
  report_sums_ = Tensor(part(sums).data(), DType::kF64, acc_.sums.shape());
  report_mtp_valid_ = part(1);
  if (biases > 0) report_biases_ = Tensor(part(biases * E).data(), DType::kF64, {biases, E});
}

void Engine::CollectReport() {
  Copy(stream_, Tensor(state_.data(), DType::kI64, {kStateWords}), report_state_);
  if (report_load_.elements() > 0)
    Copy(stream_, model_->load_counts(), report_load_.Reshape(model_->load_counts().shape()));
  Copy(stream_, rows_needed_, report_rows_needed_);
  Copy(stream_, acc_.sums, report_sums_);
  Copy(stream_, mtp_valid_, report_mtp_valid_);
}

void Engine::CollectBiases() {
  const std::vector<Tensor> biases = model_->router_biases();
  for (size_t i = 0; i < biases.size(); ++i)
    Copy(stream_, biases[i], report_biases_.At(static_cast<int64_t>(i)));
}

void Engine::KeepReport() {
  if (stream_.dry()) return;
  YM_CHECK_LT(kept_, static_cast<int64_t>(host_reports_.size()), "steps since the host looked");
  host_reports_[static_cast<size_t>(first_kept_ + kept_) % host_reports_.size()]->Enqueue(
      stream_, report_.data(), static_cast<size_t>(report_.bytes()));
  ++kept_;
}

// Whether this step may come from a recording.
bool Engine::Replays(bool exact) const {
  const bool host_takes_part =
      exact || time_next_ || after_backward_ || how_.grouped_gemm == GroupedGemmMode::kLoop ||
      (dispatcher_ && dispatcher_->host_takes_part());
  return config_.runtime.cuda_graph && device_->records() && !host_takes_part;
}

void Engine::Step(int64_t micro_batches, int64_t global_tokens, bool exact) {
  const StepShape shape{micro_batches, global_tokens};
  replayed_ = false;
  if (!Replays(exact)) {
    if (time_next_) {
      if (!timeline_) timeline_ = device_->MakeTimeline();
      device_->set_timeline(timeline_.get());
      timed_ = first_kept_ + kept_;
    }
    EnqueueStep(micro_batches, global_tokens, exact);
    device_->set_timeline(nullptr);
    time_next_ = false;
  } else if (shape == shape_) {
    if (!recording_) {
      recording_ = device_->Record(stream_, [&] { EnqueueStep(micro_batches, global_tokens, exact); });
      ++recordings_;
    }
    recording_->Replay();
    replayed_ = true;
    if (after_replay_) after_replay_();
  } else {  // whatever is made at first use is made now
    recording_.reset();
    EnqueueStep(micro_batches, global_tokens, exact);
    shape_ = shape;
  }
  KeepReport();
}

std::vector<StepReport> Engine::TakeReports(int64_t running) {
  if (dispatcher_) dispatcher_->ThrowIfFailed();
  YM_CHECK_LE(running, kept_);
  std::vector<StepReport> reports;
  for (; kept_ > running; ++first_kept_, --kept_) {
    const void* words = host_reports_[static_cast<size_t>(first_kept_) % host_reports_.size()]->Wait();
    reports.push_back(ReadReport(static_cast<const int64_t*>(words)));
    if (timed_ == first_kept_) reports.back().times = timeline_->Take();
  }
  if (running == 0) Fill(stream_, 0, acc_.overflow);
  return reports;
}

StepReport Engine::ReadReport(const int64_t* at) const {
  StepReport report;
  std::memcpy(static_cast<void*>(&report.state), at, sizeof(StepState));
  at += kStateWords;
  const int64_t E = config_.model.n_routed_experts;
  for (int64_t left = report_load_.elements(); left > 0; left -= E, at += E)
    report.load.emplace_back(at, at + E);
  report.rows_needed = *at++;
  const auto doubles = [&](int64_t n) {
    std::vector<double> values(static_cast<size_t>(n));
    std::memcpy(values.data(), at, values.size() * sizeof(double));
    at += n;
    return values;
  };
  const std::vector<double> sums = doubles(report_sums_.elements());
  const int64_t mtp_valid = *at++;
  if (config_.model.num_nextn_predict_layers > 0 && mtp_valid > 0)
    report.mtp_loss = sums[kMtpLoss] / static_cast<double>(mtp_valid);
  for (auto row = sums.begin() + kStepSums; row != sums.end(); row += kStepSums)
    report.sums.emplace_back(row, row + kStepSums);
  for (int64_t i = 0; report_biases_.defined() && i < report_biases_.dim(0); ++i) {
    const std::vector<double> bias = doubles(E);
    const auto [least, largest] = std::minmax_element(bias.begin(), bias.end());
    report.bias_range.emplace_back(*least, *largest);
  }
  return report;
}

void Engine::SetCounters(int64_t step, int64_t tokens, int64_t skipped) {
  StepState state;
  state.step = step;
  state.tokens = tokens;
  state.skipped = skipped;
  CopyStruct(stream_, state_, &state, sizeof(state));
}

std::vector<StateTensor> Engine::SavedState() const {
  std::vector<StateTensor> state = optimizer_->SavedState();
  for (const auto& b : model_->registry().buffers()) state.push_back({b->name, b->value, b->spec});
  return state;
}

std::vector<StateTensor> Engine::LoadedState() const {
  if (mode_ == EngineMode::kInference) return model_->registry().State();
  std::vector<StateTensor> state = optimizer_->LoadedState();
  for (const auto& b : model_->registry().buffers()) state.push_back({b->name, b->value, b->spec});
  return state;
}

std::vector<ReplicaTensor> Engine::ReplicatedState() const {
  std::vector<ReplicaTensor> state = optimizer_->ReplicatedState();
  for (const auto& b : model_->registry().buffers()) state.push_back({b->name, b->value, b->spec.box});
  return state;
}

void Engine::AfterLoad() {
  for (const auto& p : model_->registry().parameters()) {
    if (p->has_rounded_value()) Copy(stream_, p->master, p->value);
  }
  QuantizeParameters(model_->registry().list(), stream_);
}

std::vector<Arena*> Engine::Arenas() {
  std::vector<Arena*> arenas = {&weights_, &gradients_, &optimizer_arena_, &saved_, &work_, &step_, &exchange_};
  if (second_) arenas.insert(arenas.end(), {&second_->saved, &second_->work});
  return arenas;
}

std::vector<ArenaSize> Engine::HighWater() {
  std::vector<ArenaSize> out;
  for (const Arena* arena : Arenas())
    out.push_back({arena->name(), arena->high_water()});
  return out;
}

}  // namespace yardmaster
