// File: src/nn/moe/router.h
//
// The router: logits_TE = x_TD Wr_ED^T in the accumulator type, then choice and weights by ops/router.h.
//   Adjoint: dlogits from dw_TK by ops/router.h;  dx = dlogits Wr;  dWr = dlogits^T x.
// Weight and bias are kept in the accumulator type: a small difference of two scores decides which expert
// runs. Logits of BF16 activations are as exact as in F32; gradients take 16 bits of dlogits and Wr.
#pragma once

#include <string>

#include "src/config/config.h"
#include "src/nn/context.h"
#include "src/ops/router.h"
#include "src/ops/router_balance.h"
#include "src/ops/router_capacity.h"

namespace yardmaster {

struct RouterSaved {
  Tensor x;        // [T, D], the caller's
  Tensor scores;   // [T, E], accumulator type
  Tensor idx;      // int32 [T, K], ascending
  Tensor w;        // [T, K], accumulator type
  Tensor dispatched;  // int32 [T, K]: idx, or -1 for pairs over capacity
  Tensor logits;      // [T, E], with a z-loss
  Tensor load;        // int64 [B, E], with balance losses
  Tensor dlogits;  // [T, E], left by BackwardInput for BackwardWeight
};

class Router {
 public:
  // Parameter `prefix`.weight [E, D]; buffer `prefix`.e_score_correction_bias [E] where topk_method has a bias.
  Router(ParameterList& list, const std::string& prefix, const ModelConfig& config, DType accum,
         const MoeConfig& moe);

  // counts: int64 [E], += the load of this micro-batch (training only). forced_idx: undefined, or the experts
  // to take. sums: F64 [kStepSums], += what this layer reports. Balance losses and capacity are of training
  // only.
  void Forward(Context& ctx, MicroBatch& mb, const Tensor& x, const Tensor& counts, const Tensor& forced_idx,
               const Tensor& sums, RouterSaved& saved) const;
  void BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dw_TK, const Tensor& dx_accumulated,
                     RouterSaved& saved) const;
  void BackwardWeight(Context& ctx, MicroBatch& mb, const RouterSaved& saved) const;

  // Pairs of a micro-batch that an expert may compute; 0: all that there are.
  int64_t Capacity(const MicroBatch& mb) const;
  int64_t num_experts() const { return spec_.num_experts; }

  Buffer* bias() const { return bias_; }               // null: none
  Buffer* previous_load() const { return previous_; }  // int64 [E], of the last applied step; null: not kept

 private:
  RouterBalanceArgs BalanceArgs(const MicroBatch& mb, const RouterSaved& saved) const;
  // On tensor cores, where activations are BF16: the F32 operand as a sum of BF16 terms (ops/split_bf16.h).
  void SplitLogits(Context& ctx, const Tensor& x, const Tensor& logits) const;
  void AddSplitInput(Context& ctx, const Tensor& dlogits, const Tensor& dx) const;
  void SplitWeight(Context& ctx, const Tensor& dlogits, const Tensor& x) const;

  RouterSpec spec_;
  RouterBalanceWeights weights_;
  double capacity_factor_;
  DropPolicy drop_policy_;
  Parameter* w_;  // [E, D], accumulator type
  Buffer* bias_;  // [E], accumulator type; null: none
  Buffer* previous_;
};

}  // namespace yardmaster
