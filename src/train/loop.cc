#include "src/train/loop.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/checkpoint/run_lock.h"
#include "src/comm/agree.h"
#include "src/config/parameters.h"
#include "src/config/schedule.h"
#include "src/config/supported.h"
#include "src/metrics/metrics_file.h"
#include "src/metrics/step_record.h"
#include "src/train/batches.h"
#include "src/train/checkpointing.h"
#include "src/train/evaluate.h"
#include "src/train/machine_memory.h"
#include "src/train/open_data.h"
#include "src/train/runtime.h"
#include "src/train/signals.h"
#include "src/train/state_hash.h"
#include "src/train/summary.h"

namespace yardmaster {
namespace {

constexpr int kMaxSkippedInARow = 10;  // steps with a non-finite loss or norm; more is no accident

class TrainingRun {
 public:
  TrainingRun(const TrainOptions& options, MpiWorld* world)
      : options_(options), config_(options.loaded.config), runtime_(options.loaded, world), agreement_(runtime_.agreement()) {}
  int Run();

 private:
  void Open();           // directory, data, memory, engine, resume
  void Step();
  StepRecord MakeRecord(const StepReport& report, double seconds, int64_t batch);
  void Validate();
  void Save();
  SignalFlags AgreedSignals();
  std::string Finish(int64_t last_step);

  const TrainOptions& options_;
  const Config& config_;
  Runtime runtime_;
  Agreement& agreement_;
  std::optional<RunLock> lock_;
  std::optional<BatchSource> train_, validation_;
  std::vector<ArenaSize> planned_;
  std::optional<Engine> engine_;
  std::optional<MetricsFile> metrics_;  // rank 0
  TrainerState state_;
  int64_t saved_step_ = -1, validated_step_ = -1;
  double validation_loss_ = 0, step_seconds_ = 0;
  int skipped_in_a_row_ = 0;
  bool announced_ = false;
};

void TrainingRun::Open() {
  const std::vector<std::string> unsupported = UnsupportedFeatures(config_);
  if (!unsupported.empty()) throw ConfigError("this version cannot run:\n  " + StrJoin(unsupported, "\n  "), options_.loaded.places.file);
  LogInfo(StrCat("Yardmaster ", options_.build));
  LogInfo(StartSummary(config_, runtime_));
  lock_.emplace(config_.run.dir, agreement_);
  if (!lock_->warning().empty()) LogWarning(lock_->warning());

  DatasetFingerprint fingerprint;
  AgreeOrThrow(agreement_, [&] {
    OpenedData data = OpenData(config_, runtime_.rank() == 0 ? &fingerprint : nullptr);
    train_.emplace(std::move(data.train), config_.train.micro_batch_size, runtime_.dp_rank(), runtime_.dp_size());
    if (data.validation) validation_.emplace(std::move(*data.validation), config_.train.micro_batch_size, runtime_.dp_rank(), runtime_.dp_size());
  }, "opening the data");
  LogInfo(DescribeData(config_, train_->stream(), validation_ ? &validation_->stream() : nullptr, fingerprint));

  planned_ = Engine::Plan(EngineMode::kTraining, config_, runtime_.groups(), &runtime_.dispatcher());
  LogInfo(MemoryTable(planned_, {}));
  AgreeOrThrow(agreement_, [&] {
    CheckFits(planned_, runtime_.device(), runtime_.ranks_on_machine());
    engine_.emplace(EngineMode::kTraining, config_, runtime_.groups(), &runtime_.dispatcher(), &runtime_.device(), planned_);
    engine_->Initialise(static_cast<uint64_t>(config_.run.seed));
  }, "allocating memory");

  const ResumeDecision decision = ResumeRun(*engine_, agreement_, fingerprint, options_.accept_changes);
  LogInfo(decision.reason);
  if (decision.state) {
    state_ = *decision.state;
    saved_step_ = state_.step;
    engine_->SetCounters(state_.updates, state_.tokens, state_.skipped);
  } else {
    state_.train = fingerprint;
  }
  state_.commit = options_.build;
  AgreeOrThrow(agreement_, [&] {
    if (runtime_.rank() == 0) metrics_.emplace(JoinPath(config_.run.dir, "metrics.jsonl"), state_.step);
  }, "opening metrics.jsonl");
}

void TrainingRun::Step() {
  // The batch ramp goes by the tokens read: unlike the tokens applied, the host knows them before the step.
  const int64_t tokens_read = state_.sample_index * config_.train.sequence_length;
  const int64_t batch = EvaluateWholeSchedule(config_.train.global_batch_size, tokens_read);
  const double start = NowSeconds();
  AgreeOrThrow(agreement_, [&] { engine_->Stage(train_->Read(state_.sample_index, batch)); }, "reading the batch");
  engine_->Step(batch / (config_.train.micro_batch_size * runtime_.dp_size()), batch * config_.train.sequence_length);
  const StepReport report = engine_->Report();
  const double seconds = NowSeconds() - start;

  state_.step += 1;
  state_.sample_index += batch;
  state_.updates = report.state.step;
  state_.tokens = report.state.tokens;
  state_.skipped = report.state.skipped;
  const bool steady = announced_;  // the first step warms caches up
  if (steady) step_seconds_ = step_seconds_ == 0 ? seconds : 0.9 * step_seconds_ + 0.1 * seconds;
  const StepRecord record = MakeRecord(report, seconds, batch);
  AgreeOrThrow(agreement_, [&] { if (metrics_) metrics_->Append(ToJson(record)); }, "writing metrics.jsonl");
  if (!announced_) LogInfo(ConsoleHeader());
  const double left = step_seconds_ * static_cast<double>(config_.train.steps - state_.step);
  if (!announced_ || state_.step % config_.logging.every_steps == 0 || record.verdict != "ok")
    LogInfo(ConsoleLine(record, config_.train.steps, steady ? left : NAN));
  announced_ = true;

  YM_CHECK(record.dropped == 0, "step ", state_.step, " lost ", record.dropped, " (token, expert) pairs");
  skipped_in_a_row_ = record.verdict == "ok" ? 0 : skipped_in_a_row_ + 1;
  if (skipped_in_a_row_ >= kMaxSkippedInARow)
    throw Error(ExitCode::kInternal, StrCat(skipped_in_a_row_, " steps in a row had a non-finite loss or gradient norm and were skipped"),
                StrCat("step ", state_.step), "a lower schedule.learning_rate; checkpoints up to the last finite step are in " + config_.run.dir);
}

StepRecord TrainingRun::MakeRecord(const StepReport& report, double seconds, int64_t batch) {
  StepRecord r;
  const double tokens = static_cast<double>(batch * config_.train.sequence_length);
  r.step = state_.step;
  r.tokens = state_.tokens;
  r.loss = report.state.loss;
  r.grad_norm = report.state.grad_norm;
  r.learning_rate = report.state.learning_rate;
  r.milliseconds = seconds * 1e3;
  r.tokens_per_second = tokens / seconds;
  r.tflops = r.tokens_per_second * CountFlopsPerToken(config_.model, config_.train.sequence_length).total() * 1e-12;
  r.skipped = state_.skipped;
  r.batch = batch;
  r.verdict = report.state.verdict == 0 ? "ok" : "non-finite loss or gradient norm";
  for (const std::vector<int64_t>& load : report.load) {
    int64_t sum = 0, largest = 0;
    for (int64_t n : load) sum += n, largest = std::max(largest, n);
    r.dropped += static_cast<int64_t>(tokens) * config_.model.num_experts_per_tok - sum;
    r.load_max_over_mean = std::max(r.load_max_over_mean, static_cast<double>(largest) * static_cast<double>(load.size()) / static_cast<double>(sum));
  }
  return r;
}

void TrainingRun::Validate() {
  if (!validation_ || validated_step_ == state_.step) return;
  const EvaluationResult result = Evaluate(*engine_, *validation_, runtime_.dp_size(), {.sequences = config_.train.eval_sequences});
  validated_step_ = state_.step;
  validation_loss_ = result.loss;
  LogInfo(StrFormat("%13s validation loss %.4f over %s tokens, %.1f s", StrCat(state_.step, "/", config_.train.steps).c_str(), result.loss,
                    HumanCount(static_cast<double>(result.tokens)).c_str(), result.seconds));
  AgreeOrThrow(agreement_, [&] {
    if (metrics_)
      metrics_->Append(StrCat("{\"step\":", state_.step, ",\"tokens\":", state_.tokens, ",\"val_loss\":", StrFormat("%.17g", result.loss),
                              ",\"val_tokens\":", result.tokens, "}\n"));
  }, "writing metrics.jsonl");
}

void TrainingRun::Save() {
  if (saved_step_ == state_.step) return;
  std::string message;
  if (SaveRun(*engine_, agreement_, state_, options_.config_yaml, &message)) saved_step_ = state_.step;
  LogInfo(message);
}

SignalFlags TrainingRun::AgreedSignals() {
  const SignalFlags mine = PollSignals();
  if (runtime_.size() == 1) return mine;
  SignalFlags all;
  const std::string text = {mine.interrupt ? '1' : '0', mine.terminate ? '1' : '0', mine.save ? '1' : '0'};
  for (const std::string& s : agreement_.AllGather(text)) {
    all.interrupt |= s[0] == '1';
    all.terminate |= s[1] == '1';
    all.save |= s[2] == '1';
  }
  return all;
}

std::string TrainingRun::Finish(int64_t last_step) {
  const std::string& dir = config_.run.dir;
  std::string out = StrCat("\n", state_.step >= config_.train.steps ? "Done" : "Stopped", " at step ", state_.step, " of ", config_.train.steps, ".\n");
  if (validation_ && validated_step_ == state_.step) {
    out += StrFormat("  %-34s %7.4f nats per token\n", "validation loss", validation_loss_);
    out += BarsLine(config_.data.validation, validation_loss_);
  }
  out += StrCat("  state sha256   ", StateHash(engine_->SavedState(), engine_->device(), agreement_), "\n");
  out += StrCat("  metrics        ", JoinPath(dir, "metrics.jsonl"), "\n");
  if (saved_step_ >= 0) out += StrCat("  checkpoint     ", JoinPath(dir, "checkpoints"), ", newest of step ", saved_step_, "\n");
  out += "Next:\n";
  if (last_step < config_.train.steps) out += StrCat("  the same command without train.stop_at_step goes on from step ", saved_step_, "\n");
  if (config_.model.vocab_size == 257 && saved_step_ >= 0) out += StrCat("  yardmaster sample ", dir, " --prompt \"...\"   shows what was learned\n");
  if (last_step >= config_.train.steps) out += "  --set train.steps=N with a larger N trains on from the checkpoint\n";
  return out;
}

int TrainingRun::Run() {
  InstallSignalHandlers();
  Open();
  const int64_t stop = config_.train.stop_at_step;
  const int64_t last_step = stop > 0 ? std::min(stop, config_.train.steps) : config_.train.steps;
  bool compared = false;
  while (state_.step < last_step) {
    Step();
    if (!compared) {
      LogInfo(MemoryTable(planned_, engine_->HighWater()));
      compared = true;
    }
    const auto due = [&](int64_t every) { return every > 0 && state_.step % every == 0 && state_.step < last_step; };
    if (due(config_.train.eval_every_steps)) Validate();
    const SignalFlags signals = AgreedSignals();
    if (due(config_.checkpoint.every_steps) || signals.save || signals.interrupt) Save();
    if ((signals.interrupt || signals.terminate) && state_.step < last_step) {
      LogInfo(StrCat("stopped by a signal after step ", state_.step, "; ",
                     saved_step_ < 0 ? "there is no checkpoint yet" : StrCat("the same command resumes from step ", saved_step_)));
      return static_cast<int>(ExitCode::kStopped);
    }
  }
  if (config_.checkpoint.save_at_end) Save();
  Validate();
  LogInfo(Finish(last_step));
  return 0;
}

}  // namespace

int Train(const TrainOptions& options, MpiWorld* world) { return TrainingRun(options, world).Run(); }

}  // namespace yardmaster
