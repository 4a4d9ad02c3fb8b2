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

// How many ranks a token of balanced routing needs: n (1 - C(E - L, K) / C(E, K)), every choice of K experts as likely as
// any other. With group-limited routing (`kept` of `groups` groups), E and n shrink to the groups that are kept.
double ExpectedRanks(int64_t ep, int64_t num_experts, int64_t top_k, int64_t groups = 1, int64_t kept = 1);

// The mode for a layout, by shapes alone. Deduplication saves what crosses the wire, K - c of K rows of a token with c its
// expected ranks, (n - 1) / n of them to other ranks; it writes and reads each of the c copies once more in local
// memory, which is about ten times as fast as the wire (H200: 4.2 TB/s of copy, 0.4 TB/s of NVLink each way). So:
// deduplicated where (K - c) (n - 1) / n > 2 c / 10.
DispatchMode ModeFor(int64_t ep, int64_t num_experts, int64_t top_k, int64_t groups = 1, int64_t kept = 1);

// The tensors that both modes and an exact replay keep: J places for a token.
void AllocatePlan(const EpOptions& options, const Tensor& idx_TK, int64_t J, int64_t destinations, RoutingHandle* handle,
                  Arena& saved);

}  // namespace yardmaster
