// File: src/config/supported.h
#pragma once

#include <string>
#include <vector>

#include "src/config/config.h"

namespace yardmaster {

// What a valid configuration asks for and this version cannot run, one line each, naming the key:
// "parallel.pp = 4: ...". `validate` prints them; `train` refuses them. Empty: everything can be run.
std::vector<std::string> UnsupportedFeatures(const Config& config);

// Of these, what only the cuda device lacks, whatever runtime.device says: the one list of it. With
// runtime.device auto a run that asks for any of it is on the cpu device.
std::vector<std::string> MissingOnCuda(const Config& config);

}  // namespace yardmaster
