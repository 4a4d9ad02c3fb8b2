#include "src/config/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/base/check.h"

namespace yardmaster {

double EvaluateSchedule(const Schedule& schedule, int64_t tokens) {
  YM_CHECK(!schedule.segments.empty());
  YM_CHECK_GE(tokens, 0);
  int64_t begin = 0;
  for (const ScheduleSegment& segment : schedule.segments) {
    if (segment.until_tokens < 0 || tokens < segment.until_tokens) {
      if (segment.kind == SegmentKind::kConstant) return segment.from;
      YM_CHECK_GE(segment.until_tokens, 0, "only a constant segment may last for ever");
      const double x =
          static_cast<double>(tokens - begin) / static_cast<double>(segment.until_tokens - begin);
      if (segment.kind == SegmentKind::kLinear) return segment.from + (segment.to - segment.from) * x;
      return segment.to + (segment.from - segment.to) * 0.5 * (1 + std::cos(std::numbers::pi * x));
    }
    begin = segment.until_tokens;
  }
  return schedule.segments.back().to;
}

int64_t EvaluateWholeSchedule(const Schedule& schedule, int64_t tokens) {
  const double value = EvaluateSchedule(schedule, tokens);
  YM_CHECK(value == std::floor(value), "a schedule of whole numbers gave ", value);
  return static_cast<int64_t>(value);
}

bool IsConstantSchedule(const Schedule& schedule) {
  const double value = schedule.segments.at(0).from;
  return std::all_of(schedule.segments.begin(), schedule.segments.end(),
                     [&](const ScheduleSegment& s) { return s.from == value && s.to == value; });
}

double LargestScheduleValue(const Schedule& schedule) {
  double largest = schedule.segments.at(0).from;
  for (const ScheduleSegment& s : schedule.segments) largest = std::max({largest, s.from, s.to});
  return largest;
}

}  // namespace yardmaster
