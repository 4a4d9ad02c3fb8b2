// File: src/config/schedule.h
//
// The value of a token-keyed schedule. A segment owns the tokens [end of the one before, until): at `until`
// the next one begins. After the last `until` its `to` value holds.
#pragma once

#include <cstdint>

#include "src/config/schedule_config.h"

namespace yardmaster {

// `tokens`: tokens consumed before the step that the value is for; >= 0. Linear segments go straight from
// `from` to `to`, cosine ones along half a cosine wave.
double EvaluateSchedule(const Schedule& schedule, int64_t tokens);

// The same for schedules of whole numbers (sequences in a batch), which the reader guarantees to be constant
// pieces.
int64_t EvaluateWholeSchedule(const Schedule& schedule, int64_t tokens);

// True if the value is the same for all tokens.
bool IsConstantSchedule(const Schedule& schedule);

// The largest value that the schedule takes.
double LargestScheduleValue(const Schedule& schedule);

}  // namespace yardmaster
