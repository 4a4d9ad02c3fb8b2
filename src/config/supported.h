// File: src/config/supported.h
#pragma once

#include <string>
#include <vector>

#include "src/config/config.h"

namespace yardmaster {

// What a valid configuration asks for and this version cannot run, one line each, naming the key:
// "parallel.pp = 4: ...". `validate` prints them; `train` refuses them. Empty: everything can be run.
std::vector<std::string> UnsupportedFeatures(const Config& config);

// Those that only the cuda device cannot run: with runtime.device auto the cpu takes them.
std::vector<std::string> UnsupportedOnCuda(const Config& config);

}  // namespace yardmaster
