// File: src/train/sample.h
#pragma once

#include <cstdint>
#include <string>

namespace yardmaster {

struct SampleOptions {
  std::string run_dir, prompt;
  int64_t tokens = 200;
  double temperature = 0.7;
  uint64_t seed = 1;
};

// Continues the prompt with the newest checkpoint of the run and prints the text. Byte-level models only.
int RunSample(const SampleOptions& options);

}  // namespace yardmaster
