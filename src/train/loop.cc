#include "src/train/loop.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/base/clock.h"
#include "src/base/file_faults.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/checkpoint/run_lock.h"
#include "src/comm/agree.h"
#include "src/config/parameters.h"
#include "src/config/schedule.h"
#include "src/config/supported.h"
#include "src/metrics/metrics_file.h"
#include "src/metrics/router_health.h"
#include "src/metrics/step_parts.h"
#include "src/metrics/step_record.h"
#include "src/train/batches.h"
#include "src/train/checkpointing.h"
#include "src/train/evaluate.h"
#include "src/train/faults.h"
#include "src/train/machine_memory.h"
#include "src/train/open_data.h"
#include "src/train/replica_check.h"
#include "src/train/runtime.h"
#include "src/train/signals.h"
#include "src/train/state_hash.h"
#include "src/train/summary.h"

namespace yardmaster {
namespace {

constexpr int64_t kToldReplays = 3;  // on the console at once; later ones when a step has its line

// A step that was run and that the host has not looked at yet.
struct PendingStep {
  int64_t batch = 0;  // sequences
  double begin = 0, seconds = 0;  // when it was enqueued; what it took, once the host has looked
};

class TrainingRun {
 public:
  TrainingRun(const TrainOptions& options, MpiWorld* world)
      : options_(options),
        config_(options.loaded.config),
        runtime_(options.loaded, world),
        agreement_(runtime_.agreement()) {}
  int Run();

 private:
  void Open();  // directory, data, memory, engine, resume
  void Step();
  void Look(int64_t running);
  void Confirm(const StepReport& report, const PendingStep& run);
  StepRecord MakeRecord(const StepReport& report, const PendingStep& run);
  std::vector<RouterHealth> Health(const StepReport& report);  // by MoE layer
  bool TimesStep(int64_t step) const {
    const int64_t every = config_.logging.timings_every_steps;
    return every > 0 && step % every == 0;
  }
  // Steps that may run while the host looks at those before them.
  int64_t running() {
    const std::string& ahead = config_.runtime.run_ahead;
    return ahead == "always" || (ahead == "auto" && runtime_.device().runs_behind()) ? 1 : 0;
  }
  int64_t step_run() const { return state_.step + static_cast<int64_t>(pending_.size()); }
  void Validate();
  bool Save();  // false: it could not be written
  const SignalFlags& Signals();
  std::string Finish(int64_t last_step);
  AgreedError NotFinite(const std::string& what) const {
    return AgreedError(ExitCode::kInternal,
                       Error(ExitCode::kInternal, what, StrCat("step ", state_.step),
                             "a lower schedule.learning_rate; checkpoints are in " + config_.run.dir)
                           .what(),
                       0);
  }

  const TrainOptions& options_;
  const Config& config_;
  Runtime runtime_;
  Agreement& agreement_;
  std::optional<RunLock> lock_;
  std::optional<BatchSource> train_, validation_;
  std::vector<ArenaSize> planned_;
  std::optional<Engine> engine_;
  std::optional<MetricsFile> metrics_;  // rank 0
  StepFaults faults_;
  TrainerState state_;                // of the last confirmed step
  std::vector<PendingStep> pending_;  // after it
  bool replay_ = false;               // the next step is run in exact mode
  double lost_seconds_ = 0;           // of steps that skipped themselves, not yet counted
  double looked_ = 0;                 // when the last look was over
  int64_t saved_step_ = -1, validated_step_ = -1;
  double validation_loss_ = 0, step_seconds_ = 0;
  int64_t skipped_in_a_row_ = 0;
  SignalFlags signals_;  // arrived on any rank; `save` until it is done
  bool announced_ = false;
  RouterHealthWatch health_watch_;  // at console lines
};

void TrainingRun::Open() {
  LogInfo(StrCat("Yardmaster ", options_.build));
  LogInfo(StartSummary(config_, runtime_));
  AgreeOrThrow(
      agreement_,
      [&] {
        ReadFileFaultVariable();
        faults_ = StepFaults(runtime_.rank(), runtime_.size());
      },
      "reading which faults to make");
  const std::string windows = runtime_.mesh().ep() > 1 ? WindowWarning(config_) : "";
  if (!windows.empty() && runtime_.rank() == 0) LogWarning(windows);
  if (runtime_.device().kind() == DeviceKind::kCuda && runtime_.rank() == 0) {
    const std::vector<int> capabilities = CudaAvailability().capabilities;
    const std::string untried = capabilities.empty() ? "" : UntriedCapability(capabilities.front());
    if (!untried.empty()) LogWarning(untried);
  }
  lock_.emplace(config_.run.dir, agreement_);
  if (!lock_->warning().empty()) LogWarning(lock_->warning());

  DataFingerprints fingerprints;  // rank 0
  AgreeOrThrow(
      agreement_,
      [&] {
        OpenedData data = OpenData(config_, runtime_.rank() == 0 ? &fingerprints : nullptr);
        train_.emplace(std::move(data.train), config_.train.micro_batch_size, runtime_.dp_rank(),
                       runtime_.dp_size());
        if (data.validation)
          validation_.emplace(std::move(*data.validation), config_.train.micro_batch_size, runtime_.dp_rank(),
                              runtime_.dp_size());
      },
      "opening the data");
  LogInfo(
      DescribeData(config_, train_->stream(), validation_ ? &validation_->stream() : nullptr, fingerprints));

  planned_ = Engine::Plan(EngineMode::kTraining, config_, runtime_.groups(), runtime_.dispatcher(),
                          runtime_.device().kind());
  LogInfo(MemoryTable(planned_, {}));
  // Agreed before: to take memory that peers reach is collective.
  AgreeOrThrow(
      agreement_, [&] { CheckFits(planned_, runtime_.device(), runtime_.ranks_on_device()); },
      "planning memory");
  AgreeOrThrow(
      agreement_,
      [&] {
        engine_.emplace(EngineMode::kTraining, config_, runtime_.groups(), runtime_.dispatcher(),
                        &runtime_.device(), planned_, runtime_.dispatch_memory());
        engine_->Initialise(static_cast<uint64_t>(config_.run.seed));
        engine_->set_after_replay([this] { runtime_.NoteReplay(); });
        if (faults_.armed())
          engine_->set_after_backward([this] { faults_.AfterBackward(step_run() + 1, *engine_); });
      },
      "allocating memory");

  const ResumeDecision decision = ResumeRun(*engine_, agreement_, fingerprints, options_.accept_changes);
  LogInfo(decision.reason);
  if (decision.state) {
    state_ = *decision.state;
    saved_step_ = state_.step;
    engine_->SetCounters(state_.updates, state_.tokens, state_.skipped);
  } else {
    state_.train = fingerprints.train;
  }
  state_.validation = fingerprints.validation;
  state_.commit = options_.build;
  AgreeOrThrow(
      agreement_,
      [&] {
        if (runtime_.rank() == 0) metrics_.emplace(JoinPath(config_.run.dir, "metrics.jsonl"), state_.step);
      },
      "opening metrics.jsonl");
  if (metrics_ && !metrics_->damage().empty()) LogWarning(metrics_->damage());
}

void TrainingRun::Step() {
  int64_t sample = state_.sample_index;
  for (const PendingStep& p : pending_) sample += p.batch;
  // The batch ramp goes by the tokens read: unlike the tokens applied, the host knows them before the step.
  const int64_t batch =
      EvaluateWholeSchedule(config_.train.global_batch_size, sample * config_.train.sequence_length);
  const double start = NowSeconds();
  AgreeOrThrow(
      agreement_,
      [&] {
        faults_.BeforeBatch(step_run() + 1);
        engine_->Stage(train_->Read(sample, batch));
      },
      "reading the batch");
  if (TimesStep(step_run() + 1)) engine_->TimeNextStep();
  engine_->Step(batch / (config_.train.micro_batch_size * runtime_.dp_size()),
                batch * config_.train.sequence_length, replay_);
  pending_.push_back({batch, start, 0});
  faults_.AfterStep(step_run(), *engine_);
}

// Reads what the steps since the last look did, but for the `running` newest. Those before the first overflow
// are confirmed. The others have skipped themselves, the running ones too, and are run again with the same
// data, the first of them in exact mode: all that a step changes, metrics included, is then as if every
// window had been large enough.
void TrainingRun::Look(int64_t running) {
  const std::vector<StepReport> reports = engine_->TakeReports(running);
  YM_CHECK_EQ(reports.size() + static_cast<size_t>(running), pending_.size());
  const auto end = pending_.begin() + static_cast<std::ptrdiff_t>(reports.size());
  std::vector<PendingStep> run(pending_.begin(), end);
  pending_.erase(pending_.begin(), end);
  // The device works through the steps while the host is ahead of it: each took its share.
  const auto share_time = [&](std::vector<PendingStep>& steps) {
    if (steps.empty()) return;
    const double begin = std::max(steps.front().begin, looked_);
    looked_ = NowSeconds();
    for (PendingStep& step : steps) step.seconds = (looked_ - begin) / static_cast<double>(steps.size());
  };
  share_time(run);
  for (size_t i = 0; i < run.size(); ++i) {
    if (reports[i].state.verdict == static_cast<int32_t>(StepVerdict::kOverflow)) {
      YM_CHECK(!replay_, "step ", state_.step + 1, " overflowed in exact mode");
      replay_ = true;
      if (running > 0) {
        engine_->TakeReports();
        share_time(pending_);
        run.insert(run.end(), pending_.begin(), pending_.end());
        pending_.clear();
      }
      for (; i < run.size(); ++i) lost_seconds_ += run[i].seconds;
      return;
    }
    Confirm(reports[i], run[i]);
  }
}

void TrainingRun::Confirm(const StepReport& report, const PendingStep& run) {
  state_.step += 1;
  state_.sample_index += run.batch;
  state_.updates = report.state.step;
  state_.tokens = report.state.tokens;
  state_.skipped = report.state.skipped;
  state_.rows_needed = std::max(state_.rows_needed, report.rows_needed);
  const std::string at = StrCat(state_.step, "/", config_.train.steps);
  const double seconds =
      run.seconds + lost_seconds_;  // what was in vain counts: tokens/s are those of the run
  lost_seconds_ = 0;
  if (replay_) {
    state_.replays += 1;
    if (state_.replays <= kToldReplays || state_.step % config_.logging.every_steps == 0)
      LogInfo(StrFormat(
          "%13s replayed in rounds: a dispatch window needed %lld rows (ep.ragged_buffer_factor %g has %lld)",
          at.c_str(), static_cast<long long>(report.rows_needed), config_.ep.ragged_buffer_factor,
          static_cast<long long>(runtime_.dispatcher()->window_rows(engine_->micro_batch_tokens()))));
    replay_ = false;
  }
  const bool steady = announced_;  // the first step warms caches up
  if (steady) step_seconds_ = step_seconds_ == 0 ? seconds : 0.9 * step_seconds_ + 0.1 * seconds;
  const StepRecord record = MakeRecord(report, {run.batch, run.begin, seconds});
  AgreeOrThrow(
      agreement_,
      [&] {
        if (metrics_) metrics_->Append(ToJson(record));
      },
      "writing metrics.jsonl");
  if (!announced_) LogInfo(ConsoleHeader());
  if (!report.times.ops.empty())
    LogInfo(StrFormat("%13s %s", at.c_str(), PartTimesLine(PartTimes(report.times)).c_str()));
  const double left = step_seconds_ * static_cast<double>(config_.train.steps - state_.step);
  if (!announced_ || state_.step % config_.logging.every_steps == 0 || record.verdict != "ok")
    LogInfo(ConsoleLine(record, config_.train.steps, steady ? left : NAN));
  if (state_.step % config_.logging.every_steps == 0) {
    const RouterHealthWatch::Message health = health_watch_.Look(Health(report), state_.step);
    if (!health.text.empty() && runtime_.rank() == 0)  // every rank finds the same
      health.warning ? LogWarning(health.text) : LogInfo(health.text);
  }
  announced_ = true;

  YM_CHECK(record.lost == 0, "step ", state_.step, " lost ", record.lost, " (token, expert) pairs");
  skipped_in_a_row_ = record.verdict == "ok" ? 0 : skipped_in_a_row_ + 1;
  if (skipped_in_a_row_ > config_.train.max_skipped_steps)
    throw NotFinite(StrCat("a non-finite loss or gradient norm for ", skipped_in_a_row_,
                           skipped_in_a_row_ == 1 ? " step" : " steps in a row", "; train.max_skipped_steps is ",
                           config_.train.max_skipped_steps));
}

StepRecord TrainingRun::MakeRecord(const StepReport& report, const PendingStep& run) {
  StepRecord r;
  const double tokens = static_cast<double>(run.batch * config_.train.sequence_length);
  r.step = state_.step;
  r.tokens = state_.tokens;
  r.loss = report.state.loss;
  if (config_.model.num_nextn_predict_layers > 0) r.mtp_loss = report.mtp_loss;
  r.grad_norm = report.state.grad_norm;
  r.learning_rate = report.state.learning_rate;
  r.milliseconds = run.seconds * 1e3;
  r.tokens_per_second = tokens / run.seconds;
  r.tflops =
      r.tokens_per_second * CountFlopsPerToken(config_.model, config_.train.sequence_length).total() * 1e-12;
  r.skipped = state_.skipped;
  r.replays = state_.replays;
  r.batch = run.batch;
  r.verdict = report.state.verdict == 0 ? "ok" : "non-finite loss or gradient norm";
  for (const std::vector<int64_t>& load : report.load) {
    int64_t sum = 0, largest = 0;
    for (int64_t n : load) sum += n, largest = std::max(largest, n);
    r.lost += static_cast<int64_t>(tokens) * config_.model.num_experts_per_tok - sum;
    r.load_max_over_mean =
        std::max(r.load_max_over_mean,
                 static_cast<double>(largest) * static_cast<double>(load.size()) / static_cast<double>(sum));
  }
  if (!report.times.ops.empty()) r.parts = PartTimesJson(PartTimes(report.times));
  const std::vector<RouterHealth> health = Health(report);
  for (const RouterHealth& h : health) r.dropped += h.dropped;
  if (state_.step % config_.logging.every_steps == 0 && !health.empty()) r.router = RouterHealthJson(health);
  return r;
}

std::vector<RouterHealth> TrainingRun::Health(const StepReport& report) {
  const std::vector<int64_t> layers = engine_->model().moe_layers();
  const MoeConfig& moe = config_.moe;
  std::vector<RouterHealth> out;
  for (size_t m = 0; m < report.load.size(); ++m) {
    RouterHealth& h = out.emplace_back();
    const std::vector<double>& sums = report.sums[m];
    h.layer = layers[m];
    h.top_k = config_.model.num_experts_per_tok;
    h.load = report.load[m];
    h.dropped = static_cast<int64_t>(sums[kDroppedPairs]);
    if (m < report.bias_range.size()) h.bias = report.bias_range[m];
    const auto trained = [&](double weight, StepSum column) {
      return weight > 0 ? std::optional<double>(sums[column]) : std::nullopt;
    };
    h.sequence_balance = trained(moe.sequence_balance_weight, kSequenceBalance);
    h.micro_batch_balance = trained(moe.micro_batch_balance_weight, kMicroBatchBalance);
    h.global_batch_balance = trained(moe.global_batch_balance_weight, kGlobalBatchBalance);
    h.router_z = trained(moe.router_z_weight, kRouterZ);
  }
  return out;
}

void TrainingRun::Validate() {
  if (!validation_ || validated_step_ == state_.step) return;
  const EvaluationResult result =
      Evaluate(*engine_, *validation_, runtime_.dp_size(),
               {.sequences = config_.train.eval_sequences, .stop = [this] { return Signals().stop(); }});
  if (result.stopped) return;
  validated_step_ = state_.step;
  validation_loss_ = result.loss;
  LogInfo(StrFormat("%13s validation loss %.4f over %s tokens, %.1f s",
                    StrCat(state_.step, "/", config_.train.steps).c_str(), result.loss,
                    HumanCount(static_cast<double>(result.tokens)).c_str(), result.seconds));
  AgreeOrThrow(
      agreement_,
      [&] {
        if (metrics_ && metrics_->last_evaluation() != state_.step)  // a finished run may be started again
          metrics_->Append(EvaluationJson(state_.step, state_.tokens, result.loss, result.tokens));
      },
      "writing metrics.jsonl");
}

bool TrainingRun::Save() {
  if (saved_step_ == state_.step) return true;
  std::string message;
  const bool saved = SaveRun(*engine_, agreement_, state_, options_.config_yaml, &message);
  if (saved) {
    saved_step_ = state_.step;
    LogInfo(message);
  } else if (runtime_.rank() == 0) {
    LogError(message);
  }
  return saved;
}

const SignalFlags& TrainingRun::Signals() {
  const SignalFlags mine = PollSignals();
  const std::string text = {mine.interrupt ? '1' : '0', mine.terminate ? '1' : '0', mine.save ? '1' : '0'};
  for (const std::string& s : agreement_.AllGather(text)) {
    signals_.interrupt |= s[0] == '1';
    signals_.terminate |= s[1] == '1';
    signals_.save |= s[2] == '1';
  }
  return signals_;
}

std::string TrainingRun::Finish(int64_t last_step) {
  const std::string& dir = config_.run.dir;
  std::string out = StrCat("\n", state_.step >= config_.train.steps ? "Done" : "Stopped", " at step ",
                           state_.step, " of ", config_.train.steps, ".\n");
  if (validation_ && validated_step_ == state_.step) {
    out += StrFormat("  %-34s %7.4f nats per token\n", "validation loss", validation_loss_);
    if (config_.train.eval_sequences == 0) out += BarsLine(config_.data.validation, validation_loss_);
  }
  if (config_.logging.state_hash)
    out += StrCat("  state sha256   ", StateHash(engine_->SavedState(), engine_->device(), agreement_), "\n");
  out += StrCat("  metrics        ", JoinPath(dir, "metrics.jsonl"), "\n");
  if (config_.ep.ragged_buffer_factor > 0 && runtime_.mesh().ep() > 1) {
    // The smallest factor that has this many rows, rounded up to what is printed.
    const double balanced =
        static_cast<double>(engine_->micro_batch_tokens() * config_.model.num_experts_per_tok);
    const double factor = std::ceil(static_cast<double>(state_.rows_needed) / balanced * 1e4) / 1e4;
    out +=
        StrFormat("  replays        %lld of %lld steps; ep.ragged_buffer_factor %g would have %s, it is %g\n",
                  static_cast<long long>(state_.replays), static_cast<long long>(state_.step), factor,
                  state_.replays > 0 ? "avoided them" : "been enough", config_.ep.ragged_buffer_factor);
    if (engine_->exact_evaluations() > 0)
      out += StrCat("                 ", engine_->exact_evaluations(),
                    " batches of validation went in rounds\n");
  }
  if (saved_step_ >= 0)
    out += StrCat("  checkpoint     ", JoinPath(dir, "checkpoints"), ", newest of step ", saved_step_, "\n");
  out += "Next:\n";
  if (last_step < config_.train.steps)
    out += StrCat("  the same command without train.stop_at_step ",
                  saved_step_ < 0 ? "starts anew: nothing was saved" : StrCat("goes on from step ", saved_step_),
                  "\n");
  if (config_.model.vocab_size == 257 && saved_step_ >= 0)
    out += StrCat("  yardmaster sample ", dir, " --prompt \"...\"   shows what was learned\n");
  if (last_step >= config_.train.steps && saved_step_ >= 0)
    out += "  --set train.steps=N with a larger N trains on from the checkpoint\n";
  return out;
}

int TrainingRun::Run() {
  Open();
  const int64_t stop = config_.train.stop_at_step;
  const int64_t last_step = stop > 0 ? std::min(stop, config_.train.steps) : config_.train.steps;
  bool compared = false;
  const auto due = [&](int64_t every, int64_t step) { return every > 0 && step > 0 && step % every == 0; };
  while (state_.step < last_step) {
    Step();
    SignalFlags signals = Signals();
    // What looks at the state of the last step needs all of them to be over.
    const bool all = replay_ || step_run() == last_step || TimesStep(step_run()) || !announced_ ||
                     due(config_.train.eval_every_steps, step_run()) ||
                     due(config_.train.replica_check_every_steps, step_run()) ||
                     due(config_.checkpoint.every_steps, step_run()) || signals.save || signals.interrupt ||
                     signals.terminate;
    if (!all && static_cast<int64_t>(pending_.size()) < config_.ep.overflow_check_every_n_steps + running())
      continue;
    // May go back; what was done after the step that it goes back to is not done again.
    Look(all ? 0 : running());
    if (!pending_.empty()) continue;
    if (!compared && state_.step > 0) {
      LogInfo(MemoryTable(planned_, engine_->HighWater()));
      compared = true;
    }
    if (due(config_.train.replica_check_every_steps, state_.step))
      CheckReplicas(engine_->ReplicatedState(), state_.step, engine_->device(), agreement_);
    if (due(config_.train.eval_every_steps, state_.step) && state_.step < last_step) Validate();
    signals = signals_;  // some may have come during the evaluation
    signals_.save = false;
    if ((due(config_.checkpoint.every_steps, state_.step) && state_.step < last_step) || signals.save ||
        signals.interrupt)
      Save();
    if (signals.stop() && state_.step < last_step) {
      LogInfo(StrCat("stopped by a signal after step ", state_.step, "; ",
                     saved_step_ < 0 ? "there is no checkpoint yet"
                                     : StrCat("the same command resumes from step ", saved_step_)));
      return static_cast<int>(ExitCode::kStopped);
    }
  }
  const bool saved = !config_.checkpoint.save_at_end || Save();
  Validate();
  LogInfo(Finish(last_step));
  if (validated_step_ == state_.step && !std::isfinite(validation_loss_))
    throw NotFinite("the validation loss is not finite");
  if (state_.step > 0 && state_.updates == 0) throw NotFinite("no step was applied");
  return static_cast<int>(saved ? ExitCode::kOk : ExitCode::kDiskFull);  // what was trained since the last save is lost
}

}  // namespace

int Train(const TrainOptions& options, MpiWorld* world) {
  InstallSignalHandlers();
  // Before the layout: a config for thousands of ranks is first of all one that this version may not run.
  const std::vector<std::string> unsupported = UnsupportedFeatures(options.loaded.config);
  if (!unsupported.empty())
    throw AgreedError(ExitCode::kConfig,
                      StrCat(options.loaded.places.file, ": this version cannot run:\n  ", StrJoin(unsupported, "\n  ")), 0);
  return TrainingRun(options, world).Run();
}

}  // namespace yardmaster
