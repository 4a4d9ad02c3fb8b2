// File: src/train/validate_report.h
#pragma once

#include <string>

#include "src/config/config.h"

namespace yardmaster {

// What a valid config describes: parameters total and active, FLOPs, precision, memory, and what this version
// cannot run. Does not depend on the number of ranks that happen to run.
std::string ValidateReport(const std::string& config_path, const Config& config);

}  // namespace yardmaster
