// File: src/train/loop.h
//
// A training run from start to end: plan, start or resume, step, evaluate, save, stop. `yardmaster train`.
#pragma once

#include <string>

#include "src/comm/mpi/mpi_world.h"
#include "src/config/reader.h"

namespace yardmaster {

struct TrainOptions {
  LoadedConfig loaded;
  std::string config_yaml;      // the resolved config as text: goes into checkpoints
  std::string build;            // version and commit, for the console and checkpoints
  bool accept_changes = false;  // resume although settings or data changed
};

// Returns the exit code: 0 done or stopped at stop_at_step, 75 stopped by a signal (resumable). Throws Error.
int Train(const TrainOptions& options, MpiWorld* world);

}  // namespace yardmaster
