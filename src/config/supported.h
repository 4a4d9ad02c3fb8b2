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

// The compute capability of the GPUs on which everything was tested and measured: 9.0, the H200.
inline constexpr int kTriedCapability = 90;

// What a GPU of this compute capability (90: 9.0) cannot run of the configuration; empty: nothing.
std::string UnsupportedOnCapability(const Config& config, int capability);

// That no GPU of this compute capability has run this version; empty for the one that has.
std::string UntriedCapability(int capability);

}  // namespace yardmaster
