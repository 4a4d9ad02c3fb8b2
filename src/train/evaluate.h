// File: src/train/evaluate.h
#pragma once

#include <functional>

#include "src/train/batches.h"
#include "src/train/engine.h"

namespace yardmaster {

struct EvaluationOptions {
  int64_t sequences = 0;             // of the held-out part, from its beginning; 0: all
  bool zero_routed_experts = false;  // ablation: what the experts contribute
  std::function<bool()> stop = {};   // asked between batches, on all ranks alike; true: gives up
};

struct EvaluationResult {
  double loss = 0;     // mean over the counted targets, nats
  int64_t tokens = 0;  // counted targets
  double seconds = 0;
  bool stopped = false;  // before the end: loss is of a part
};

// The mean loss over the held-out part, each target once. Collective over dp. Changes no state of the run.
EvaluationResult Evaluate(Engine& engine, BatchSource& source, int64_t dp_size,
                          const EvaluationOptions& options);

}  // namespace yardmaster
