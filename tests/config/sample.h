// A small valid configuration, and the message of an error that a test expects.
#pragma once

#include <functional>
#include <string>

#include "src/base/error.h"

namespace yardmaster::testing {

inline const std::string kSampleConfig = R"(run:
  dir: runs/sample
model:
  vocab_size: 257
  hidden_size: 64
  num_hidden_layers: 3
  first_k_dense_replace: 1
  intermediate_size: 96
  num_attention_heads: 4
  q_lora_rank: 24
  kv_lora_rank: 16
  qk_nope_head_dim: 16
  qk_rope_head_dim: 8
  v_head_dim: 12
  n_routed_experts: 16
  num_experts_per_tok: 4
  n_shared_experts: 1
  moe_intermediate_size: 32
  n_group: 4
  topk_group: 2
  norm_topk_prob: true
train:
  steps: 10
  sequence_length: 32
  micro_batch_size: 2
  global_batch_size: 4
optimizer:
  beta1: 0.9
  weight_decay: 0.1
schedule:
  learning_rate: 1e-3
data:
  train: data/a
  validation: data/b
checkpoint:
  every_steps: 5
)";

// kSampleConfig with the first `from` replaced by `to`; throws if there is none, so that a test cannot test
// nothing.
inline std::string Sample(const std::string& from, const std::string& to) {
  std::string text = kSampleConfig;
  const size_t at = text.find(from);
  if (at == std::string::npos) throw InternalError("no '" + from + "' in the sample");
  return text.replace(at, from.size(), to);
}

// The text of the ConfigError that `action` throws; "" if it throws none.
inline std::string ConfigErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code() == ExitCode::kConfig ? error.what() : std::string("another error: ") + error.what();
  }
  return "";
}

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace yardmaster::testing
