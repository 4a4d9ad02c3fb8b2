// File: src/optim/device_schedule.h
#pragma once

#include "src/config/schedule_config.h"
#include "src/ops/step_control.h"

namespace yardmaster {

// A config schedule as the device sees it. Throws ConfigError (naming `key`) for more than kMaxSegments segments.
DeviceSchedule ToDeviceSchedule(const Schedule& schedule, const std::string& key);

}  // namespace yardmaster
