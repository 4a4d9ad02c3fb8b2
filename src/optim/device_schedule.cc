#include "src/optim/device_schedule.h"

#include <limits>

#include "src/base/error.h"
#include "src/base/strings.h"

namespace yardmaster {

DeviceSchedule ToDeviceSchedule(const Schedule& schedule, const std::string& key) {
  DeviceSchedule out;
  if (schedule.segments.size() > DeviceSchedule::kMaxSegments)
    throw ConfigError(StrCat(key, " has ", schedule.segments.size(), " segments; at most ", DeviceSchedule::kMaxSegments, " are possible"));
  for (const ScheduleSegment& s : schedule.segments) {
    const int i = out.num_segments++;
    out.kind[i] = static_cast<int32_t>(s.kind);
    out.until_tokens[i] = s.until_tokens < 0 ? std::numeric_limits<int64_t>::max() : s.until_tokens;
    out.from[i] = s.from;
    out.to[i] = s.to;
  }
  return out;
}

}  // namespace yardmaster
