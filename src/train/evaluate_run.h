// File: src/train/evaluate_run.h
#pragma once

#include <string>

namespace yardmaster {

struct EvaluateRunOptions {
  std::string run_dir;
  std::string data;                  // path prefix; empty: data.validation of the run's config
  bool zero_routed_experts = false;
};

// Prints the mean loss of the newest checkpoint over the whole held-out part, beside the data set's bars.
int RunEvaluate(const EvaluateRunOptions& options);

}  // namespace yardmaster
