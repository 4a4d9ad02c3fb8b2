// File: src/comm/ep/ep_plan.h
//
// What the dispatchers over several ranks have in common: their options, the size of a window, the tensors of a plan.
#pragma once

#include "src/comm/ep/dispatcher.h"
#include "src/parallel/expert_placement.h"

namespace yardmaster {

enum class DispatchMode { kExpanded, kDeduplicated };

struct EpOptions {
  int64_t num_experts = 0;  // E
  int64_t top_k = 0;        // K
  int ep = 1;               // n
  int ep_index = 0;
  double ragged_buffer_factor = -1;
  DispatchMode mode = DispatchMode::kExpanded;
  // Windows hold this many tokens a rank at least: for groups whose ranks differ in T.
  int64_t least_tokens = 0;

  int64_t local_experts() const { return num_experts / ep; }
  bool expanded() const { return mode == DispatchMode::kExpanded; }
  // Rows that a token may send: one for each choice, or for each rank.
  int64_t rows_per_token() const { return expanded() || top_k < ep ? top_k : ep; }
  // R = ceil(factor * T * K), at most the worst case n * T * min(K, L), which a factor of -1 means.
  int64_t window_rows(int64_t tokens) const;
  // Tokens that a rank may receive, deduplicated: each has at least one row in the window, and each rank sends each of
  // its tokens at most once.
  int64_t tokens_received(int64_t tokens) const;
  std::string Me() const;
};

// Throws ConfigError when ep does not divide the experts; the rest is checked as bugs.
void CheckEpOptions(const EpOptions& options);

// The tensors that both modes and an exact replay keep: J places for a token.
void AllocatePlan(const EpOptions& options, const Tensor& idx_TK, int64_t J, int64_t destinations, RoutingHandle* handle,
                  Arena& saved);

}  // namespace yardmaster
