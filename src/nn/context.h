// File: src/nn/context.h
//
// What a phase gets besides its tensors. A Context belongs to a rank; a MicroBatch to the samples in flight:
// everything saved for backward lies in the micro-batch's own arena, never in a layer, so that a pipeline may
// have several in flight.
//
// Module convention (docs/tour.md): Forward(ctx, mb, x, y, saved), BackwardInput(ctx, mb, dy, dx, saved),
// BackwardWeight(ctx, mb, saved), adjacent in one file, the adjoint's formula in the comment.
//   - x, y, dy, dx are given by the caller. A module allocates from mb.saved what backward needs (also what
//     BackwardInput leaves for BackwardWeight) and from ctx.work, within an ArenaScope, what it does not.
//   - BackwardInput overwrites dx. Weight gradients accumulate with Parameter::TakeGradBeta.
//   - No host reads device data; no allocation but from arenas; no branch on data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "src/base/check.h"
#include "src/device/arena.h"
#include "src/nn/parameter.h"
#include "src/ops/attention.h"
#include "src/ops/grouped_gemm.h"
#include "src/ops/recipe_gemm.h"

namespace yardmaster {

// What backward computes once more instead of finding it saved, each with those before it. The bits are the same.
// SwiGLU's output never is saved: its backward has it at no cost.
enum class Recompute : uint8_t {
  kNone,
  kNorms,        // normalised states and latents
  kProjections,  // latent attention's queries, keys and values, from the latents
};

// Which of several ways a run computes what it computes; of the cuda device but for `recompute`.
struct Implementations {
  GroupedGemmMode grouped_gemm = GroupedGemmMode::kAuto;
  AttentionMode attention = AttentionMode::kAuto;
  int64_t attention_workspace = kAttentionWorkspace;
  bool deterministic = true;
  Recompute recompute = Recompute::kNone;
  // With a recipe and kNone: inputs of linear layers that in backward nothing but their weight gradients reads are kept
  // as the 8-bit copies which these multiply. The bits are the same.
  bool saved_copies = false;
};

// A stream for dispatch and combine beside ctx.stream, with scratch of its own: memory that one stream still uses must
// not be given to the other.
struct CommunicationStream {
  Stream stream;
  Arena* work;
};

// Two micro-batches in turn (Model::RunForwardInTurn): what one of them has on the communication stream goes on beside
// the other's computation. At most one such operation is under way at a time.
struct Turns {
  int under_way = -1;  // whose it is; -1: none, or it was waited for
};

struct MicroBatch;

struct Context {
  Stream stream;
  Arena& work;
  ComputeTypes types;
  Implementations how = {};
  const CommunicationStream* communication = nullptr;  // null: everything is on `stream`
  Turns* turns = nullptr;                              // null: one micro-batch at a time
  int turn = 0;                                        // which of the two this context is for

  // A matrix that is multiplied, with what the recipe makes of it (ops/recipe_gemm.h). Copies for products of the phase
  // itself lie in `work`, within the caller's scope; a gradient's for the weight gradient in mb.saved, until then.
  RecipeOperand ForProducts(const RecipeOperand& x, const Tensor& offsets = {}) {
    return x.rows.defined() ? x : WithCopies(stream, types.recipe, x.values, offsets, &work, nullptr);
  }
  RecipeOperand ForWeightGradients(const RecipeOperand& x, const Tensor& offsets = {}) {
    return x.cols.defined() ? x : WithCopies(stream, types.recipe, x.values, offsets, nullptr, &work);
  }
  RecipeOperand ForBoth(const Tensor& x, Arena& saved, const Tensor& offsets = {}) {
    return WithCopies(stream, types.recipe, x, offsets, &work, &saved);
  }
  // An input of linear layers that weight gradients alone read in backward: where its values lie, and itself with copies
  // for both where these are kept instead. Without Implementations::saved_copies x alone, in mb.saved unless backward
  // computes it again.
  Arena& LinearInputs(const MicroBatch& mb) const;
  RecipeOperand KeptInput(const Tensor& x, const MicroBatch& mb);

  // Where values lie that backward makes for the weight gradient: with a recipe only their copies are kept.
  Arena& ValuesUntilWeights(Arena& saved) { return types.recipe.format ? work : saved; }

  // What follows on the communication stream begins after all that `stream` has been given, and the way back. Without
  // such a stream: nothing.
  // In turns the way back is not taken where a phase asks for it (Join), but when the micro-batch has its turn again
  // (TakeTurn) or the next operation begins (Fork), whichever is first: what a phase forked is there in the
  // micro-batch's next turn, and not before.
  CommunicationStream Fork() const {
    if (communication == nullptr) return {stream, &work};
    if (turns != nullptr) {
      Settle();
      turns->under_way = turn;
    }
    communication->stream.After(stream);
    return *communication;
  }
  void Join() const {
    if (communication != nullptr && turns == nullptr) stream.After(communication->stream);
  }
  void TakeTurn() const {
    if (turns != nullptr && turns->under_way == turn) Settle();
  }
  // In turns: waits for whatever is under way.
  void Settle() const {
    if (turns == nullptr || turns->under_way < 0) return;
    stream.After(communication->stream);
    turns->under_way = -1;
  }

 private:
  bool KeepsCopies(const MicroBatch& mb) const;
};

// What a model keeps on the host for a micro-batch between forward and backward: views into its saved arena.
struct InFlight {
  virtual ~InFlight() = default;
};

// Columns of the sums that a step reports, F64 [1 + MoE layers, kStepSums]: row 0 is the model's (kMtpLoss),
// row 1 + m that of the m-th MoE layer. Losses are means over the global batch, without their weights.
enum StepSum : int {
  kMtpLoss = 0,  // sum of the losses of multi-token prediction
  kSequenceBalance = 0,
  kMicroBatchBalance,
  kGlobalBatchBalance,
  kRouterZ,
  kDroppedPairs,  // (token, expert) pairs over capacity
  kStepSums
};

struct MicroBatch {
  int64_t B = 0, S = 0;
  int64_t T() const { return B * S; }
  Tensor tokens;     // int32 [T]
  Tensor targets;    // int32 [T], -1: ignored
  Tensor positions;  // int32 [T], of RoPE
  Tensor document_start =
      {};  // int32 [B, S]: index in the sample of the first token of the document; or undefined
  double grad_scale = 0;  // 1 / valid tokens of the global batch
  double share = 1;       // tokens of this micro-batch / tokens of the global batch
  Tensor mtp_scale = {};  // F64 [1]: weight / counted targets of multi-token prediction in the global batch
  bool training = true;   // false: no gradients, no load counts
  // A replay of a step whose load did not fit: dispatch in rounds, the host reads the counts
  // (nn/moe/exact_rounds.h).
  bool exact = false;
  Arena* saved = nullptr;  // a stack: forward pushes layer by layer, backward pops
  // Of the last micro-batch of a step, or empty: backward has enqueued all gradients of the registry's parameters
  // [begin, end). Parameters of which it says nothing are done when backward is.
  std::function<void(size_t begin, size_t end)> gradients_done = {};
  // What attention is told: undefined when it reaches across documents.
  Tensor DocumentStartUnless(bool across_documents) const {
    if (across_documents) return {};
    YM_CHECK(document_start.defined(),
             "documents are kept apart, but the micro-batch does not say where they start");
    return document_start;
  }

  // For parity and ablation tests, not for training.
  const std::vector<Tensor>* forced_routing = nullptr;  // by layer: int32 [T, K] or undefined
  bool zero_routed_experts = false;                     // drop the routed experts' output

  // Set by Model::RunForward.
  Tensor sums = {};                               // F64 [1 + MoE layers, kStepSums]: StepAccumulators::sums
  Tensor overflow = {};                           // int32 [1], sticky: StepAccumulators::overflow
  std::shared_ptr<InFlight> in_flight = nullptr;  // the Saved structs between forward and backward
};

inline bool Context::KeepsCopies(const MicroBatch& mb) const {
  return how.saved_copies && types.recipe.format && how.recompute == Recompute::kNone && mb.training;
}
inline Arena& Context::LinearInputs(const MicroBatch& mb) const {
  return how.recompute >= Recompute::kNorms || KeepsCopies(mb) ? work : *mb.saved;
}
inline RecipeOperand Context::KeptInput(const Tensor& x, const MicroBatch& mb) {
  return KeepsCopies(mb) ? ForBoth(x, *mb.saved) : RecipeOperand(x);
}

}  // namespace yardmaster
