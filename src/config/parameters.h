// File: src/config/parameters.h
//
// Sizes that follow from the model section alone: parameters in all and per token, and the floating point
// operations of training on a token.
#pragma once

#include <cstdint>
#include <string>

#include "src/config/model_config.h"

namespace yardmaster {

// Elements of the tensors of a checkpoint, router bias included, multi-token prediction modules not.
struct ParameterCounts {
  int64_t embedding = 0;
  int64_t attention = 0;  // projections and the norms of latents, or of queries and keys
  int64_t dense_mlp = 0;  // of the first layers
  int64_t router = 0;     // router weights and the selection bias
  int64_t routed_experts = 0;
  int64_t shared_experts = 0;
  int64_t norms = 0;  // two per layer and the last one
  int64_t head = 0;
  int64_t inactive_experts = 0;  // of routed_experts: those that a token does not choose

  int64_t total() const {
    return embedding + attention + dense_mlp + router + routed_experts + shared_experts + norms + head;
  }
  int64_t active() const { return total() - inactive_experts; }
};

// Whether the counts fit in 62 bits. Sizes are within the ranges of the schema.
bool ParametersAreCountable(const ModelConfig& model);
ParameterCounts CountParameters(const ModelConfig& model);  // requires ParametersAreCountable

struct FlopsPerToken {
  double dense = 0;  // 3 x 2 x active_matmul_parameters
  double attention =
      0;  // 3 x 2 x layers x H x (qk_head_dim + v_head_dim) x S / 2: a causal mask computes half
  int64_t active_matmul_parameters = 0;  // incl. head and router weights; without embedding, norms and biases
  double total() const { return dense + attention; }
};

// Forward and backward of a token in sequences of `sequence_length`. Recomputation, the optimizer and
// elementwise operations are not counted. FlopsFormula says so in one line.
FlopsPerToken CountFlopsPerToken(const ModelConfig& model, int64_t sequence_length);
std::string FlopsFormula(const ModelConfig& model, int64_t sequence_length);

}  // namespace yardmaster
