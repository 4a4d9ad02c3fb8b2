// File: src/config/printer.h
#pragma once

#include <string>

#include "src/config/config.h"

namespace yardmaster {

// YAML with every field, defaults included, that ParseConfig turns into an equal Config (`--print-config`).
// Presets are printed as the segments that they stand for.
std::string PrintConfig(const Config& config);

// docs/config_reference.md: every section and field with type, default, accepted values and meaning, and the
// forms of schedules.
std::string ConfigReferenceMarkdown();

}  // namespace yardmaster
