#include "src/train/checkpointing.h"

#include <algorithm>

#include "src/base/files.h"
#include "src/base/strings.h"
#include "src/checkpoint/find.h"
#include "src/checkpoint/load.h"
#include "src/checkpoint/save.h"
#include "src/comm/agree.h"

namespace yardmaster {
namespace {

constexpr char kConfigText[] = "config.yaml", kTrainerText[] = "trainer.json";

std::string CheckpointDir(const std::string& run_dir) { return JoinPath(run_dir, "checkpoints"); }

const std::string& TextOf(const std::map<std::string, std::string>& texts, const char* name,
                          const std::string& path) {
  const auto it = texts.find(name);
  if (it == texts.end())
    throw CheckpointError(StrCat("the checkpoint has no ", name), path,
                          "it was not written by yardmaster train");
  return it->second;
}

std::string Skipped(const FoundCheckpoint& found) {
  std::string out;
  for (const SkippedCheckpoint& s : found.skipped)
    out += StrCat("\n               passed over ", s.name, ": ", s.reason);
  return out;
}

// Settings and data of the checkpoint against those of this launch. Returns the lines to print when changes
// are accepted. `mismatch`: why the state could not be loaded even so; "": it could.
std::string CheckSameRun(const Config& config, const std::string& saved_yaml, const TrainerState& saved,
                         const DataFingerprints& data, const std::string& path, const std::string& mismatch,
                         bool accept_changes) {
  std::string notes;
  const std::vector<std::string> changed = ChangedSettings(saved_yaml, config);
  if (!changed.empty()) {
    const std::string lines = StrJoin(changed, "\n  ");
    if (!mismatch.empty())
      throw CheckpointError(StrCat("this launch differs from the run in the checkpoint, whose state it cannot take over (",
                                   mismatch, "):\n  ", lines),
                            path, "set these back, choose another run.dir, or start anew with checkpoint.resume=never");
    if (!accept_changes)
      throw CheckpointError("this launch differs from the run in the checkpoint:\n  " + lines, path,
                            "set these back, choose another run.dir, start anew with "
                            "checkpoint.resume=never, or go on with --accept-changes");
    notes += "\n               accepted changes: " + StrJoin(changed, "; ");
  }
  try {
    CheckSameDataset(saved.train, data.train);
    // Another validation set may be chosen; the same one must not have changed.
    if (!saved.validation.bin.path.empty() && saved.validation.bin.path == data.validation.bin.path)
      CheckSameDataset(saved.validation, data.validation);
  } catch (const Error& e) {
    if (!accept_changes) throw;
    notes += StrCat("\n               accepted changed data: ", e.what());
  }
  return notes;
}

ResumeDecision ResumeFrom(const FoundCheckpoint& found, Engine& engine, Agreement& agreement,
                          const DataFingerprints& data, bool accept_changes) {
  const Config& config = engine.config();
  ResumeDecision decision;
  const std::map<std::string, std::string> texts = LoadCheckpointText(found.path, agreement);
  std::string notes;
  AgreeOrThrow(
      agreement,
      [&] {
        if (agreement.rank() != 0) return;
        const TrainerState saved = TrainerStateFromJson(TextOf(texts, kTrainerText, found.path), found.path);
        notes = CheckSameRun(config, TextOf(texts, kConfigText, found.path), saved, data, found.path,
                             CheckpointMismatch(found.path, engine.LoadedState()), accept_changes);
      },
      "resuming");
  const LoadReport report = LoadCheckpoint(found.path, engine.LoadedState(), engine.device(), agreement);
  if (!report.unused.empty())
    throw CheckpointError(StrCat("the checkpoint holds ", report.unused.size(),
                                 " tensors that this model does not have, first ", report.unused[0]),
                          found.path);
  engine.AfterLoad();
  decision.state = TrainerStateFromJson(TextOf(texts, kTrainerText, found.path), found.path);
  if (accept_changes) decision.state->train = data.train;
  decision.path = found.path;
  decision.reason =
      StrCat("  resume       from step ", found.step, ": ", found.reason, Skipped(found), notes);
  return decision;
}

}  // namespace

ResumeDecision ResumeRun(Engine& engine, Agreement& agreement, const DataFingerprints& data,
                         bool accept_changes) {
  const Config& config = engine.config();
  FindOptions find{CheckpointDir(config.run.dir), ParseResume(config.checkpoint.resume),
                   config.checkpoint.verify == "full"};
  const FoundCheckpoint found = FindCheckpoint(find, agreement);
  if (found.fresh()) {
    ResumeDecision decision;
    decision.reason = StrCat("  start        from step 0: ", found.reason, Skipped(found));
    return decision;
  }
  try {
    return ResumeFrom(found, engine, agreement, data, accept_changes);
  } catch (const Error& e) {
    if (e.code() != ExitCode::kCheckpoint) throw;  // of another run: no older checkpoint would do
    if (find.verify_full) throw;
    // Names and sizes were right, its bytes may be damaged: look at all of them, and take an older one if so.
    find.verify_full = true;
    const FoundCheckpoint verified = FindCheckpoint(find, agreement);
    if (verified.path == found.path) throw;
    return ResumeFrom(verified, engine, agreement, data, accept_changes);
  }
}

bool SaveRun(Engine& engine, Agreement& agreement, const TrainerState& state, const std::string& config_yaml,
             std::string* message) {
  CheckpointContents contents;
  contents.step = state.step;
  contents.tensors = engine.SavedState();
  contents.text = {{kConfigText, config_yaml}, {kTrainerText, ToJson(state)}};
  const SaveOptions options{CheckpointDir(engine.config().run.dir), engine.config().checkpoint.keep_latest};
  const SaveResult result = SaveCheckpoint(options, contents, engine.device(), agreement);
  *message =
      result.ok ? StrFormat("%13s saved %s, %s, %.1f s",
                            StrCat(state.step, "/", engine.config().train.steps).c_str(), result.path.c_str(),
                            HumanBytes(static_cast<double>(result.bytes)).c_str(), result.seconds)
                : StrCat("could not save step ", state.step, ": ", result.reason,
                         "\n  training goes on; the last checkpoint stands");
  for (const std::string& warning : result.warnings) *message += "\n  warning: " + warning;
  return result.ok;
}

LoadedRun OpenRun(const std::string& run_dir, Agreement& agreement) {
  if (!PathExists(CheckpointDir(run_dir)))
    throw CheckpointError("there is no checkpoint here", run_dir,
                          "give the run.dir of a run that has saved, such as runs/tiny");
  const FoundCheckpoint found = FindCheckpoint({CheckpointDir(run_dir), {}, true}, agreement);
  if (found.fresh())
    throw CheckpointError(StrCat("there is no checkpoint here: ", found.reason), run_dir,
                          "give the run.dir of a run that has saved");
  const std::map<std::string, std::string> texts = LoadCheckpointText(found.path, agreement);
  LoadedRun run;
  run.path = found.path;
  run.loaded = ParseConfig(TextOf(texts, kConfigText, found.path), JoinPath(found.path, kConfigText), {});
  run.state = TrainerStateFromJson(TextOf(texts, kTrainerText, found.path), found.path);
  return run;
}

void LoadWeights(Engine& engine, const LoadedRun& run, Agreement& agreement) {
  LoadCheckpoint(run.path, engine.LoadedState(), engine.device(), agreement);
  engine.AfterLoad();
}

}  // namespace yardmaster
