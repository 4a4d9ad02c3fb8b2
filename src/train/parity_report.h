// File: src/train/parity_report.h
//
// What parity compares and how it says so.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/tensor/safetensors.h"

namespace yardmaster {

// Each with the reason why it is not zero: float32 sums in another order.
struct ParityTolerances {
  double logits = 1e-5;           // largest difference over the largest logit
  double hidden = 1e-5;           // likewise, of each layer's output
  double routing_weights = 1e-5;  // likewise, of the weights of the chosen experts
  double loss = 1e-5;             // relative
  double gradients = 1e-4;        // L2 of the difference over L2 of the reference
  double adamw_loss = 1e-4;       // relative, each step: differences grow with the steps
  // A gradient below this part of the L2 norm of all gradients counts as that large: where the reference is
  // zero (an expert without tokens) or rounding, a relative difference means nothing. Together with
  // `gradients` it leaves 1e-8 of that norm, a sixth of one float32 rounding of it. The router of a
  // normalised top-1 needs it: its weight is 1, its gradient 0, and the reference's what rounding left.
  double gradient_floor = 1e-4;
  double all_gradients = -1;  // L2 of all differences over L2 of all gradients; below 0: shown only
  double routing = 0;         // different choices; below 0: shown only
  double flip_margin = 0;     // by how much scores speak for another choice than the reference's (routing_flips.h)

  // float32 on a GPU: still other orders, and its own exp.
  static ParityTolerances OtherDevice() {
    return {.logits = 1e-4, .hidden = 1e-4, .routing_weights = 1e-4, .loss = 1e-4};
  }
  // BF16 weights and activations, 8 bits of mantissa, rounded after every operation. Rounding also flips choices
  // between experts of nearly equal scores: --route-from keeps them.
  static ParityTolerances Bf16() {
    return {.logits = -1, .hidden = -1, .routing_weights = -1, .loss = 1e-2, .gradients = 1e-1,
            .adamw_loss = 5e-2, .all_gradients = 3e-2, .routing = -1, .flip_margin = 2e-2};
  }
};

struct ParityRow {
  std::string what;
  double difference = 0;
  double tolerance = -1;  // below 0: shown only, but NaN on either side fails
  std::string note;
  bool failed = false;
};

// `ours` as RunParity computed it. `grads` null: the model has no reference gradients; a row says so.
// Entries, ours or the reference's, of which `skip` says true are not looked at.
std::vector<ParityRow> CompareParity(const std::vector<NamedTensor>& ours, const SafetensorsFile& expected,
                                     const SafetensorsFile* grads, const ParityTolerances& tolerances,
                                     const std::function<bool(const std::string& name)>& skip = {});

// An aligned table with a verdict on each row.
std::string ParityTable(const std::vector<ParityRow>& rows);

}  // namespace yardmaster
