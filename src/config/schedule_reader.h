// File: src/config/schedule_reader.h
//
// The YAML forms of a schedule, and back. A schedule is written as
//   a number:    3e-4
//   segments:    - linear: {from: 0, to: 2.2e-4, until: 31e9}       # from defaults to where the last segment
//   ended
//                - cosine: {to: 2.2e-5, until: 14.3e12}
//                - constant: {value: 7.3e-6}                        # without until (last segment only): for
//                ever
//   a preset:    {preset: warmup_cosine, peak: 2.2e-4, warmup_steps: 2000, total_steps: 100000, min: 2.2e-5}
//                {preset: wsd, peak: 1e-3, warmup_steps: 100, stable_steps: 800, decay_steps: 100, min: 0,
//                decay: linear}
// `until` counts tokens from the start of training. Preset lengths are in steps or in tokens (warmup_tokens,
// ...). Whole-number schedules (sequences in a batch) are constant pieces; a linear segment needs
// `multiple_of` there, and becomes a staircase: `linear: {from: 3072, to: 15360, until: 469e9, multiple_of:
// 384}`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/config/issues.h"
#include "src/config/schedule_config.h"
#include "src/config/value_range.h"
#include "src/config/yaml_document.h"

namespace yardmaster {

// What is known where a schedule is read.
struct ScheduleContext {
  // Tokens that a step consumes, to turn steps into tokens.
  //   kUnknown: the batch has errors of its own, so nothing is said about it; kVarying: the batch is a
  //   schedule itself.
  static constexpr int64_t kUnknown = 0, kVarying = -1;

  std::string path;  // dotted key, for messages
  ValueRange range;  // of every value
  bool whole_numbers = false;
  int64_t tokens_per_step = kUnknown;
};

// The schedule, or nothing after adding to `issues`.
std::optional<Schedule> ReadSchedule(const YamlNode& node, const ScheduleContext& context, Issues& issues);

// YAML that ReadSchedule turns into an equal schedule: a number, or lines indented by `indent` that begin
// with "\n".
std::string FormatSchedule(const Schedule& schedule, int indent);

}  // namespace yardmaster
