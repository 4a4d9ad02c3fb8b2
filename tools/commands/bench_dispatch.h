// File: tools/commands/bench_dispatch.h
//
// `yardmaster bench dispatch`: expert-parallel dispatch and combine over peer memory, with virtual ranks on one GPU: the
// kernels that train, all ranks at once, each on its stream. What crosses to a peer is a copy within the GPU's memory
// here, so the bar is the speed of a plain copy, measured in the same run, on the bytes that must move:
//   expanded      dispatch  T read + R written             combine  R read + T written
//   deduplicated  dispatch  T read + W written, W read + R written; combine the same backwards
// with T tokens, R rows (T * top-k) and W copies of tokens that are sent (one for each rank that a token needs, this rank
// included). Times are medians of `repeats`; each is of several calls in a row, after `heat_seconds` of load.
//
// logical GB/s: R rows for each rank; wire GB/s: what goes to other ranks, for each rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yardmaster {

struct BenchDispatchOptions {
  int ranks = 8;
  int64_t tokens = 4096;  // of each rank
  int64_t top_k = 8;
  int64_t experts = 256;
  int64_t hidden = 7168;
  std::string routing = "random";                              // routing_choices.h
  std::vector<std::string> modes = {"expanded", "deduplicated"};
  std::vector<int> sms = {0, 8, 16, 24, 32};  // multiprocessors of all ranks together; 0: all but four
  int repeats = 11;
  double heat_seconds = 1;
  bool json = false;
};

// Prints the table, or one JSON object, and returns the exit code. Throws ConfigError for options out of range and where
// there is no GPU.
int RunBenchDispatch(const BenchDispatchOptions& options);

// What the routing makes move, summed over the ranks.
struct DispatchTraffic {
  int64_t tokens = 0, rows = 0, copies = 0;    // T, R, W
  int64_t remote_rows = 0, remote_copies = 0;  // of R and W, what goes to another rank
  int64_t most_rows = 0;                       // of a window
};
// idx[p]: int32 [tokens, top_k] of rank p.
DispatchTraffic CountTraffic(const std::vector<std::vector<int32_t>>& idx, int64_t experts, int64_t top_k);

struct BenchDispatchResult {
  std::string mode, op;  // op: plan, dispatch, combine
  int sms = 0;
  double ms = 0;
};

// The output; `copy_gbs` is the plain copy's read + write.
std::string BenchDispatchText(const BenchDispatchOptions& options, const std::string& device, double copy_gbs,
                              const DispatchTraffic& traffic, const std::vector<BenchDispatchResult>& results);

}  // namespace yardmaster
