// File: tools/commands/routing_choices.h
//
// Which experts the tokens of benchmarks choose:
//   balanced  every expert equally often, in random company
//   random    each token any top-k experts: what balanced training comes to
//   real      experts differ in popularity by a few times, as trained models show it
//   skew:S    one expert is chosen S times as often as the mean, the others at random
//   one       all tokens the same top-k experts
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yardmaster {

// int32 [tokens, top_k], ascending in each token; the same in every run for the same `seed` (a rank's number). Throws
// ConfigError for another name, and for a skew under 1 or over experts / top_k.
std::vector<int32_t> RoutingChoices(const std::string& routing, int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed);

}  // namespace yardmaster
