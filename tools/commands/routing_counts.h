// File: tools/commands/routing_counts.h
//
// How benchmarks spread rows over experts:
//   balanced  the same for each
//   jitter    uniform within 30 % of the mean
//   skew:S    one expert has S times the mean, the others share the rest, within 10 %
//   one       one expert has all rows
//   empty     every second expert has none
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yardmaster {

// Rows per expert; they add up to `rows`, and are the same in every run. Throws ConfigError for
// another name, and for a skew under 1 or over the number of experts.
std::vector<int64_t> RoutingCounts(const std::string& routing, int experts, int64_t rows);

}  // namespace yardmaster
