// File: src/train/resume.h
//
// What a run keeps besides tensors, and the decision to resume. The complete state of a run is: the tensors
// of Engine::SavedState, and TrainerState. Both go into every checkpoint; nothing else survives a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/data/fingerprint.h"

namespace yardmaster {

struct TrainerState {
  int64_t step = 0;          // training steps done, skipped ones included
  int64_t updates = 0;       // StepState.step: updates applied
  int64_t tokens = 0;        // StepState.tokens
  int64_t skipped = 0;       // StepState.skipped
  int64_t sample_index = 0;  // next global sample: the whole state of the data
  int64_t replays = 0;       // steps that were run again in exact mode
  int64_t rows_needed = 0;   // by the fullest dispatch window so far
  DatasetFingerprint train;       // what the run has been trained on
  DatasetFingerprint validation;  // and evaluated on; empty paths: nothing
  std::string commit;        // build that wrote it
};

std::string ToJson(const TrainerState& state);
TrainerState TrainerStateFromJson(const std::string& text,
                                  const std::string& where);  // throws CheckpointError

// Settings that change what is computed (model, data, optimizer, schedules, batch, seed, precision) and
// differ between the run in the checkpoint and this launch, one line each: "optimizer.beta2: 0.95 in the
// checkpoint, 0.99 now". Settings of the launch (steps, logging, checkpoint, layout, device, evaluation) may
// change freely.
std::vector<std::string> ChangedSettings(const std::string& saved_yaml, const Config& now);

}  // namespace yardmaster
