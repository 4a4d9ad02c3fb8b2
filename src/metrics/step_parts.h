// File: src/metrics/step_parts.h
//
// The time of a step by part, from the times of its ops (device/timeline.h), and the lines that show it.
#pragma once

#include <string>
#include <vector>

#include "src/device/timeline.h"

namespace yardmaster {

// "grouped_gemm", "dispatch", "combine", "attention", "dense_gemm", "quantise", "router", "norm", "activation",
// "loss", "optimizer", "other". The products of the head belong to the loss; a router's to dense_gemm; quantising
// that an op does on its way to that op.
const char* PartOf(const std::string& op);

struct PartTime {
  std::string part;
  double milliseconds = 0;
};

// In the order above, those that took time; at the end "between": the rest of the step, in which no op ran
// (launches, communication). Never negative: parts of streams side by side may add up to more than the step.
std::vector<PartTime> PartTimes(const StepTimes& times);

// "parts_ms":{"grouped_gemm":12.345,...}, a member of an object of metrics.jsonl.
std::string PartTimesJson(const std::vector<PartTime>& parts);
// "by part, ms: grouped_gemm 12.3 (41 %), ...", the largest first.
std::string PartTimesLine(const std::vector<PartTime>& parts);

}  // namespace yardmaster
