// File: src/config/model_config.h
//
// The model section. Field names and meanings are those of DeepSeek-V3's config.json, so that a published
// config can be copied; the few that are ours say so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace yardmaster {

// YaRN (Peng et al., arXiv 2309.00071), with the field names of rope_scaling in config.json.
struct RopeScaling {
  std::string type = "yarn";
  double factor = 40;
  int64_t original_max_position_embeddings = 4096;
  double beta_fast = 32;
  double beta_slow = 1;
  double mscale = 1;
  double mscale_all_dim = 0;  // 0: mscale scales the rotated part only; else the softmax scale changes (V3: 1)

  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig {
  std::string model_type = "deepseek_v3";
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;             // D
  int64_t num_hidden_layers = 0;
  int64_t first_k_dense_replace = 0;   // the first k layers have a dense MLP
  int64_t intermediate_size = 0;       // width of the dense MLP
  int64_t max_position_embeddings = 4096;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.006;    // DeepSeek-V3 technical report, section 4.2

  // Attention (MLA).
  int64_t num_attention_heads = 0;     // H
  int64_t q_lora_rank = 0;             // 0 (or null): q is projected directly
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling;

  // Mixture of experts.
  int64_t n_routed_experts = 0;        // E
  int64_t num_experts_per_tok = 0;     // K
  int64_t n_shared_experts = 0;        // one MLP of width n_shared_experts * moe_intermediate_size
  int64_t moe_intermediate_size = 0;   // F
  int64_t n_group = 1;
  int64_t topk_group = 1;
  std::string scoring_func = "sigmoid";
  std::string topk_method = "noaux_tc";  // bias for selection only; group score = sum of its two best biased
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1;

  // Multi-token prediction.
  int64_t num_nextn_predict_layers = 0;

  bool IsMoeLayer(int64_t layer) const { return n_routed_experts > 0 && layer >= first_k_dense_replace; }
  int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }

  bool operator==(const ModelConfig&) const = default;
};

}  // namespace yardmaster
