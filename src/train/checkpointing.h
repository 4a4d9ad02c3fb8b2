// File: src/train/checkpointing.h
//
// The trainer's side of checkpoints: what goes in, the decision to resume, and what of a checkpoint must fit
// this launch.
#pragma once

#include <optional>
#include <string>

#include "src/base/agreement.h"
#include "src/config/reader.h"
#include "src/train/engine.h"
#include "src/train/open_data.h"
#include "src/train/resume.h"

namespace yardmaster {

struct ResumeDecision {
  std::optional<TrainerState> state;  // none: a fresh start
  std::string path;                   // of the checkpoint
  std::string reason;  // one or more lines for the console: what was chosen and what was skipped, and why
};

// Finds the checkpoint that config.checkpoint.resume asks for, checks that it belongs to this run (settings
// and data; `accept_changes` turns those errors into notes), and loads it into the engine. Collective: all
// ranks decide alike.
ResumeDecision ResumeRun(Engine& engine, Agreement& agreement, const DataFingerprints& data,
                         bool accept_changes);

// Saves under run.dir/checkpoints. False (with `message`) when it could not be written: training goes on with
// the last one.
bool SaveRun(Engine& engine, Agreement& agreement, const TrainerState& state, const std::string& config_yaml,
             std::string* message);

// Loads the weights of the newest valid checkpoint of a run for evaluation or sampling.
struct LoadedRun {
  LoadedConfig loaded;
  TrainerState state;
  std::string path;
};
LoadedRun OpenRun(const std::string& run_dir, Agreement& agreement);
void LoadWeights(Engine& engine, const LoadedRun& run, Agreement& agreement);

}  // namespace yardmaster
