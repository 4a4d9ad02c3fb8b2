#include "src/config/schedule.h"

#include <cmath>

#include "src/base/error.h"
#include "tests/catch.h"

namespace yardmaster {

TEST_CASE("a segment owns the tokens from the end of the one before up to its own") {
  const Schedule s{{{SegmentKind::kLinear, 100, 0, 1},
                    {SegmentKind::kConstant, 200, 1, 1},
                    {SegmentKind::kCosine, 400, 1, 0.2},
                    {SegmentKind::kConstant, -1, 0.05, 0.05}}};
  CHECK(EvaluateSchedule(s, 0) == 0);
  CHECK(EvaluateSchedule(s, 25) == 0.25);
  CHECK(EvaluateSchedule(s, 99) == Approx(0.99));
  CHECK(EvaluateSchedule(s, 100) == 1);
  CHECK(EvaluateSchedule(s, 199) == 1);
  CHECK(EvaluateSchedule(s, 200) == 1);
  CHECK(EvaluateSchedule(s, 250) == Approx(0.2 + 0.8 * 0.5 * (1 + std::cos(std::acos(-1.0) / 4))));
  CHECK(EvaluateSchedule(s, 300) == Approx(0.6));
  CHECK(EvaluateSchedule(s, 399) > 0.2);
  CHECK(EvaluateSchedule(s, 400) == 0.05);
  CHECK(EvaluateSchedule(s, INT64_MAX) == 0.05);
}

TEST_CASE("after the last segment its final value holds") {
  const Schedule s{{{SegmentKind::kLinear, 100, 2, 1}}};
  CHECK(EvaluateSchedule(s, 99) == Approx(1.01));
  CHECK(EvaluateSchedule(s, 100) == 1);
  CHECK(EvaluateSchedule(s, 1000) == 1);
}

TEST_CASE("token counts beyond 32 bits") {
  const Schedule s{{{SegmentKind::kLinear, 14800000000000, 0, 1}}};
  CHECK(EvaluateSchedule(s, 7400000000000) == 0.5);
}

TEST_CASE("constant schedules and largest values") {
  CHECK(IsConstantSchedule(Schedule::Constant(3)));
  CHECK(IsConstantSchedule({{{SegmentKind::kConstant, 10, 3, 3}, {SegmentKind::kLinear, 20, 3, 3}}}));
  CHECK_FALSE(IsConstantSchedule({{{SegmentKind::kConstant, 10, 3, 3}, {SegmentKind::kConstant, -1, 4, 4}}}));
  CHECK_FALSE(IsConstantSchedule({{{SegmentKind::kLinear, 10, 3, 4}}}));
  CHECK(LargestScheduleValue({{{SegmentKind::kLinear, 10, 3, 4}, {SegmentKind::kConstant, -1, 1, 1}}}) == 4);
}

TEST_CASE("whole schedules give integers, and a fraction is a bug") {
  CHECK(EvaluateWholeSchedule({{{SegmentKind::kConstant, 10, 8, 8}, {SegmentKind::kConstant, -1, 16, 16}}},
                              10) == 16);
  CHECK_THROWS_AS(EvaluateWholeSchedule(Schedule::Constant(1.5), 0), InternalError);
  CHECK_THROWS_AS(EvaluateSchedule(Schedule{}, 0), InternalError);
}

}  // namespace yardmaster
