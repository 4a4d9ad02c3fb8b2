// File: tools/commands/bench_op.h
//
// `yardmaster bench OP` and `bench all`: each call of an op against the cpu device in double on random sizes,
// then its time at the sizes of DeepSeek-V3 and the share of the ceiling that was measured in the same run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace yardmaster {

struct BenchOpOptions {
  std::string op = "all";             // or a name of BenchOps() (tools/bench_ops/bench_op.h)
  int64_t tokens = 8192;              // of the timed sizes
  std::string precision = "bf16";     // bf16 | fp32
  std::optional<uint64_t> seed = {};  // of the random sizes and inputs; by default another in every run
  int rounds = 3;                     // random sizes tried
  int repeats = 11;                   // timed runs of each call, at least 3
  double heat_seconds = 0.3;          // before each product, and what else the clock binds
  bool check_only = false;            // no clock
  bool json = false;
};

// Prints a line per call, or one JSON object. Returns 1 when a result is wrong. Throws ConfigError for
// options out of range and where there is no GPU.
int RunBenchOp(const BenchOpOptions& options);

// Names and summaries, for the command line.
std::vector<std::pair<std::string, std::string>> BenchOpNames();

}  // namespace yardmaster
