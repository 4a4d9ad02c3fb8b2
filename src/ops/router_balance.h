// File: src/ops/router_balance.h
//
// Losses that balance a router (docs/balancing.md compares them with other trainers'). With s the scores of
// ops/router.h and n_te = s_te / sum_j s_tj the normalised ones, m_te = 1 where e is among the K largest raw
// scores of t (no bias, no groups; ties: the lower id):
//   sequence  mean over sequences b of E/(K S^2) sum_e (sum_t n_te)(sum_t m_te)     DeepSeek-V3 report, eq. 17-20
//   micro     E/(K T^2) sum_e (sum_t n_te)(sum_t m_te) over the micro-batch
//   global    1/T sum_te n_te f_e,  f_e = E * previous_e / sum previous: the load of the previous global batch
//   z         1/T sum_t logsumexp(logits_t)^2                                       ST-MoE, arXiv 2202.08906
// All are 1 (z apart) at perfect balance. Counts have no gradient.
#pragma once

#include "src/device/arena.h"
#include "src/ops/router.h"

namespace yardmaster {

struct RouterBalanceWeights {
  double sequence = 0, micro_batch = 0, global_batch = 0, z = 0;
  bool any() const { return sequence != 0 || micro_batch != 0 || global_batch != 0 || z != 0; }
};

struct RouterBalanceArgs {
  Tensor logits = {};    // [T, E], accumulator type; required with weights.z
  Tensor scores;         // [T, E], accumulator type, as RouterForward left them
  Tensor previous = {};  // int64 [E]; required with weights.global_batch. All zero (the first step): balanced
  Tensor load;           // int64 [B, E]: sum_t m_te of each sequence, kept for backward
  double share =
      1;  // of the global batch that this micro-batch is: the losses are means over the global batch
  Tensor sums = {};  // F64 [4]: += share * {sequence, micro, global, z}, those of weight 0 too (z needs
                     // logits); or undefined
};
void RouterBalanceForward(const Stream& stream, const RouterSpec& spec, const RouterBalanceArgs& args, Arena& work);

// dlogits_TE += share * gradient of the weighted sum. Through the normalisation and the score:  g_te = sum
// over the losses of d/dn_te;  softmax: dlogit_e = n_e (g_e - sum_j n_j g_j);  sigmoid: dlogit_e = (g_e -
// sum_j n_j g_j) / sum_j s_j * s_e (1 - s_e);  z: 2 logsumexp(logits_t) softmax(logits_t)_e / T.
void RouterBalanceBackward(const Stream& stream, const RouterSpec& spec, const RouterBalanceWeights& weights,
                           const RouterBalanceArgs& forward, const Tensor& dlogits);

}  // namespace yardmaster
