// File: src/config/reader.h
//
// From YAML and command line overrides to a checked Config. Paths inside a configuration are relative to the
// current directory of the process, not to the file. There is no inclusion of other files and no use of the
// environment.
#pragma once

#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/config/places.h"

namespace yardmaster {

struct LoadedConfig {
  Config config;
  ConfigPlaces places;
};

// Reads `path`, applies `overrides` ("train.steps=100", the value is YAML; later ones win), and validates.
// Throws ConfigError with every error at once, each line `file:line:column: section.key: message`; errors of
// an override name it instead: `--set train.steps=x: train.steps: message`.
LoadedConfig LoadConfig(const std::string& path, const std::vector<std::string>& overrides);

// The same for text that was read already; `file` names it in messages.
LoadedConfig ParseConfig(const std::string& text, const std::string& file,
                         const std::vector<std::string>& overrides);

}  // namespace yardmaster
