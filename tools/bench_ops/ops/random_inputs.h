// File: tools/bench_ops/ops/random_inputs.h
//
// Integer and structured inputs of the benched ops, from the seed of the sizes alone.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/bench_ops/bench_op.h"

namespace yardmaster {

std::vector<double> UniformValues(const BenchSizes& s, const char* what, int64_t n, double low, double high);

// int32 [T, K]: distinct experts of each token, ascending; uneven, so that loads are ragged.
std::vector<double> RandomExperts(const BenchSizes& s);

// What a permutation plan makes of them.
struct ExpertRows {
  std::vector<double> offsets;  // [E + 1]
  std::vector<double> slot;     // [T, K]
  std::vector<double> source;   // [T K]
};
ExpertRows RowsOfExperts(const BenchSizes& s, const std::vector<double>& idx);

// [positions, width / 2, 2]: cos and sin.
std::vector<double> RopeTable(int64_t positions, int64_t width);
std::vector<double> Positions(const BenchSizes& s);  // int32 [T]: 0 .. S - 1 for each sample

}  // namespace yardmaster
