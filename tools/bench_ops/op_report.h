// File: tools/bench_ops/op_report.h
//
// What `yardmaster bench OP` prints: a line for each call, or one JSON object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yardmaster {

// Measured in the same run, on the same warm device.
struct BenchCeilings {
  double bytes_per_s = 0;  // a device-to-device copy of 1 GiB, read and written
  double flops_per_s = 0;  // a square cuBLASLt product of 8192 (FP32: 4096) in the work type
};

struct OpResult {
  std::string op, call, sizes;
  double error = 0, tolerance = 0;  // relative L2 against double
  std::string trouble;              // "": it agrees
  double ms = 0;                    // median; 0: not timed
  double bytes = 0, flops = 0;      // the fewest that must move; operations, 0: bound by memory
};

struct OpReportHead {
  std::string device, precision;
  uint64_t seed = 0;
  int rounds = 0, repeats = 0;
  BenchCeilings ceilings;
};

// Of the ceiling that binds the call.
double PercentOfCeiling(const OpResult& result, const BenchCeilings& ceilings);

std::string OpReportText(const OpReportHead& head, const std::vector<OpResult>& results);
std::string OpReportJson(const OpReportHead& head, const std::vector<OpResult>& results);

}  // namespace yardmaster
