// File: src/ops/router.h
//
// From router logits to the chosen experts, their weights and the load, in one pass (DeepSeek-V3 technical report,
// section 2.1.2; the gate of its reference inference code).
//   s_e = sigmoid(logit_e) or softmax over all experts: scores
//   c_e = s_e + bias_e                           choice scores: the bias selects only, it never weighs
//   groups of E/n_group experts: group score = sum of its two largest c (DeepSeek-V3) or the largest (DeepSeek-V2); the
//   topk_group best groups stay, the experts of the others are masked with -inf; then the K largest c. Ties: the lower
//   id, for groups and for experts.
//   w_k = s_k / (sum over the chosen s + 1e-20) if norm_topk_prob, times routed_scaling_factor
// A softmax over the chosen logits alone (Mixtral's "top-k, then softmax") is softmax scores with normalisation: the
// common denominator cancels, in value and in gradient.
// Chosen experts are written in ascending id, so that every later sum over k has one order.
#pragma once

#include "src/device/device.h"

namespace yardmaster {

enum class RouterScore : uint8_t { kSigmoid, kSoftmax };
enum class GroupScore : uint8_t { kTop2Sum, kMax };

// Benchmarks only: experts by token number, weighed by their own scores. kBalanced: token t takes experts (t K + i) mod E.
// kSkewed: expert 0 takes force_skew times the mean load, evenly over the tokens, the others share the rest.
enum class ForcedRouting : uint8_t { kNone, kBalanced, kSkewed };

struct RouterSpec {
  int64_t num_experts = 0;    // E
  int64_t top_k = 0;          // K
  int64_t num_groups = 1;
  int64_t topk_groups = 1;
  RouterScore score = RouterScore::kSigmoid;
  GroupScore group_score = GroupScore::kTop2Sum;
  bool normalise = true;
  double scaling = 1;
  ForcedRouting force = ForcedRouting::kNone;
  double force_skew = 1;      // largest over mean load, in [1, E / K]
};

struct RouterArgs {
  Tensor logits;              // [T, E], accumulator type
  Tensor bias = {};           // [E], accumulator type, or undefined
  Tensor forced_idx = {};     // int32 [T, K] ascending, or undefined: choose these experts, weigh by own scores (parity --route-from)
  Tensor scores;              // [T, E], accumulator type, kept for backward
  Tensor idx;                 // int32 [T, K], ascending
  Tensor w;                   // [T, K], accumulator type
  Tensor counts = {};         // int64 [E]: += assignments of this micro-batch; undefined: not counted (evaluation)
};
void RouterForward(const Stream& stream, const RouterSpec& spec, const RouterArgs& args);

// With n = sum of the chosen s (+1e-20), c the scaling:  ds_k = c/n * (dw_k - sum_j dw_j s_j / n)  (normalised; else
// c * dw_k), zero for experts not chosen;  sigmoid: dlogit_e = ds_e s_e (1 - s_e);  softmax: dlogit_e = s_e (ds_e - sum_j
// ds_j s_j). Selection has no gradient.
struct RouterBackwardArgs {
  Tensor dw;                  // [T, K], accumulator type
  Tensor scores;              // [T, E]
  Tensor idx;                 // [T, K]
  Tensor dlogits;             // [T, E], overwritten
};
void RouterBackward(const Stream& stream, const RouterSpec& spec, const RouterBackwardArgs& args);

}  // namespace yardmaster
