// File: tools/commands/bench_grouped_gemm.h
//
// `yardmaster bench grouped-gemm`: the grouped GEMM that training runs, beside one dense GEMM over
// the same rows (cuBLASLt) and, on request, beside a loop of dense GEMMs with counts on the host.
//
// Ours and the other run in turn, `pairs` times, the order changing from pair to pair; a ratio is
// the median over the pairs of (its time / our time): above 1, ours is faster. The dense weight
// gradient is one product over all rows, which writes one matrix where ours writes one per expert.
// Operands are random, and both run for a while before they are measured: zeros and rested chips
// draw less power and run faster. With `precision` fp8_block ours multiplies quantised copies, made
// beforehand (ops/scaled_gemm.h); what it runs beside stays BF16.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yardmaster {

struct BenchGroupedGemmOptions {
  int64_t rows = 32768;
  int experts = 8;
  int64_t n = 4096;  // gate+up of DeepSeek-V3
  int64_t k = 7168;
  std::string routing = "balanced";  // routing_counts.h
  std::string precision = "bf16";    // or fp8_block
  std::vector<std::string> ops;      // names of BenchGroupedGemmOps(); empty: all of the precision
  int pairs = 9;                     // at least 7
  double heat_seconds = 0.5;         // before each measurement
  bool loop = false;                 // the loop of dense GEMMs too
  bool json = false;
};

const std::vector<std::string>& BenchGroupedGemmOps();

// Prints the table, or one JSON object, and returns the exit code. Throws ConfigError for options
// out of range and where there is no GPU.
int RunBenchGroupedGemm(const BenchGroupedGemmOptions& options);

// What was measured for one op; milliseconds are medians.
struct BenchGroupedGemmResult {
  std::string op;
  double ms = 0, dense_ms = 0, dense_ratio = 0;
  double loop_ms = 0, loop_ratio = 0;  // 0 without --loop
};

// The output for `results`; `device` names GPU and versions.
std::string BenchGroupedGemmText(const BenchGroupedGemmOptions& options, const std::string& device,
                                 const std::vector<int64_t>& counts,
                                 const std::vector<BenchGroupedGemmResult>& results);

}  // namespace yardmaster
