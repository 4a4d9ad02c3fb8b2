// File: src/config/schedule_config.h
//
// Schedules are keyed by tokens: a list of segments, each from the end of the one before it to `until` tokens.
// What is scheduled is a plain number: learning rate, sequences in a batch, speed of the router bias.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yardmaster {

enum class SegmentKind : int32_t { kConstant = 0, kLinear = 1, kCosine = 2 };

struct ScheduleSegment {
  SegmentKind kind = SegmentKind::kConstant;
  int64_t until_tokens = -1;  // exclusive end; -1: for ever (last segment only)
  double from = 0;            // value at the segment's start
  double to = 0;              // value at its end (constant: equal to from)

  bool operator==(const ScheduleSegment&) const = default;
};

struct Schedule {
  std::vector<ScheduleSegment> segments;  // never empty; until_tokens strictly increasing
  static Schedule Constant(double value) { return {{{SegmentKind::kConstant, -1, value, value}}}; }

  bool operator==(const Schedule&) const = default;
};

}  // namespace yardmaster
