// File: src/train/validate_report.h
#pragma once

#include <string>

#include "src/config/config.h"
#include "src/config/places.h"

namespace yardmaster {

// What a valid config describes: parameters total and active, FLOPs, precision, memory, and what this version
// cannot run. Does not depend on the number of ranks that happen to run: memory is that of one rank with the
// whole model or, with `ranks`, of rank 0 among so many (rank_plan.h). ConfigError with the places where these do
// not suit the layout.
std::string ValidateReport(const std::string& config_path, const Config& config, int64_t ranks = 0,
                           const ConfigPlaces& places = {});

}  // namespace yardmaster
