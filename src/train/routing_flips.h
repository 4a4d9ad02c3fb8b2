// File: src/train/routing_flips.h
//
// Where a run in BF16 chose other experts than the reference: how many tokens, and by how little. Rounding
// may turn a choice between nearly equal scores; a choice that the scores speak clearly against is an error,
// not rounding.
#pragma once

#include <cstdint>
#include <vector>

#include "src/config/config.h"

namespace yardmaster {

struct RoutingFlips {
  int64_t tokens = 0;         // with other experts than the reference's
  int64_t later = 0;          // of these, behind a flip of an earlier layer: their scores are those of another input
  double largest_margin = 0;  // over the others
  int64_t token = -1;         // that has it; -1: none
};

// How far a token's scores are from choosing `experts` (K of them, in any order): the most by which a group,
// or an expert of an open group, that would have to give way outdoes one that would have to be chosen. 0:
// they choose these. Scores are those of the choice, with the router's bias; group scores are sums of two
// where the model's are. Softmax scores shrink as experts become more, so there the distance is relative to
// the larger of the two. Infinite with NaN and for experts that no scores could choose.
double ChoiceMargin(const ModelConfig& config, const std::vector<double>& choice_E,
                    const std::vector<int64_t>& experts);

// Over the tokens of a layer; rows of `choice` [T, E], `ours` and `reference` [T, K]. The margin of a flip is that
// of the reference's choice, or of ours, which should have none. With `forced`, the experts were the
// reference's, and a flip is what the scores alone would have chosen otherwise. `changed` [T] says whose input
// an earlier layer's flip has changed: its token, and through attention those behind it in its sample of
// `sequence` tokens. Those of this layer are added.
RoutingFlips FindFlips(const ModelConfig& config, const std::vector<double>& choice,
                       const std::vector<int32_t>& ours, const std::vector<int32_t>& reference,
                       int64_t sequence, bool forced, std::vector<bool>* changed);

}  // namespace yardmaster
