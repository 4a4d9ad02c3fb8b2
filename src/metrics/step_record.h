// File: src/metrics/step_record.h
//
// What one training step reports, and its two forms: an object in metrics.jsonl and an aligned console line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yardmaster {

struct StepRecord {
  int64_t step = 0;      // 1 is the first
  int64_t tokens = 0;    // of all applied steps up to this one
  double loss = 0;       // mean over the valid tokens of the global batch, nats
  double mtp_loss = -1;  // of multi-token prediction, mean over counted positions and depths; below 0: none
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double milliseconds = 0;
  double tokens_per_second = 0;
  double tflops = 0;              // tokens_per_second * FLOPs per token (formula printed at start)
  double load_max_over_mean = 0;  // worst MoE layer: busiest expert's pairs over the mean
  int64_t dropped = 0;            // (token, expert) pairs over capacity: 0 without capacity mode
  int64_t lost = 0;               // pairs that were not routed at all: checked to be 0
  int64_t skipped = 0;            // steps skipped so far for a non-finite value
  int64_t replays = 0;            // steps run again so far because a dispatch window was too small
  int64_t batch = 0;              // sequences in this step
  std::string verdict = "ok";
  std::string router;  // RouterHealthJson; "": not in this record
  std::string parts;   // PartTimesJson; "": not a timed step
};

std::string ToJson(const StepRecord& record);  // one line, 17 significant digits, null for non-finite
// The object of an evaluation: `val_loss`, and no `loss`.
std::string EvaluationJson(int64_t step, int64_t tokens, double loss, int64_t counted);
std::string ConsoleHeader();
std::string ConsoleLine(const StepRecord& record, int64_t last_step, double seconds_left);

}  // namespace yardmaster
