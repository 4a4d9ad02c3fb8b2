// File: src/nn/moe/grouped_experts.h
//
// The experts of this rank on ragged, expert-major rows (ops/grouped_gemm.h): for the rows of expert l
//   y_R = down_l(w_R * silu(gate_l(x_R)) * up_l(x_R))
// The router's weight goes in before the down projection, so that combine is a plain sum (ops/swiglu.h). Rows
// at and beyond offsets[L] are never touched. Products are in the run's recipe (ops/recipe_gemm.h).
// Padded to M rows an expert (ops/pad_rows.h), the caller's rows are copied into buffers of the experts' own,
// [L M, .], and results are copied back: its windows, and whatever fills them, know nothing of it.
#pragma once

#include <string>

#include "src/nn/context.h"

namespace yardmaster {

struct ExpertsSaved {
  // What is computed on: the caller's, or with padding copies of [L M] rows.
  Tensor x;        // [R, D], or as it was dispatched: U8 [R, WireBytes] (ops/wire_rows.h)
  Tensor w;        // [R], accumulator type
  Tensor offsets;  // int64 [L + 1]
  Tensor gate_up;  // [R, 2F]
  // Left by BackwardInput for BackwardWeight; with a recipe their copies alone.
  RecipeOperand dy;        // [R, D]
  RecipeOperand act;       // [R, F], weighted
  RecipeOperand dgate_up;  // [R, 2F]

  int64_t padded_rows = 0;                    // M; 0: not padded
  Tensor ragged_x, ragged_w, ragged_offsets;  // the caller's, with padding
};

class GroupedExperts {
 public:
  // Parameters `prefix`.gate_up_proj [E, 2F, D] (gate first) and `prefix`.down_proj [E, D, F]; this rank owns
  // experts [begin, begin + count).
  GroupedExperts(ParameterList& list, const std::string& prefix, int64_t E, int64_t D, int64_t F,
                 int64_t begin, int64_t count, double init_std);

  // Allocates what backward needs, before the caller's window for y, which goes back to mb.saved earlier.
  // padded_rows: M, at least the rows of any expert; 0: as many as there are.
  void Save(Context& ctx, MicroBatch& mb, const Tensor& x, const Tensor& w, const Tensor& offsets,
            int64_t padded_rows, ExpertsSaved& saved) const;
  void Forward(Context& ctx, MicroBatch& mb, const Tensor& y, ExpertsSaved& saved) const;
  // The first part of Forward alone: x -> gate_up, for a backward whose window held other rows meanwhile.
  void GateUp(Context& ctx, const ExpertsSaved& saved) const;
  // dy as x: values, or as it was dispatched.
  // dact = dy W2_l;  dgate_up and dw by ops/swiglu.h;  dx = dgate_up W1_l.
  void BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dy, const Tensor& dw, const Tensor& dx,
                     ExpertsSaved& saved) const;
  // dW2_l = dy^T act;  dW1_l = dgate_up^T x over the rows of expert l; zeros for an expert without rows.
  // free_sms: left to what begins with it and ends before the first of the two products (ops/grouped_gemm.h).
  void BackwardWeight(Context& ctx, MicroBatch& mb, const ExpertsSaved& saved, int free_sms = 0) const;

 private:
  // Dispatched rows as an operand: [R, D] with copies in the arenas that are given, null for none.
  RecipeOperand Received(Context& ctx, const Tensor& x, const Tensor& offsets, Arena* rows, Arena* cols) const;

  int64_t D_, F_;
  Parameter* w1_;  // [L, 2F, D]
  Parameter* w2_;  // [L, D, F]
};

}  // namespace yardmaster
