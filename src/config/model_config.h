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
  // deepseek_v3 | deepseek_v2: latent attention (MLA); qwen3_moe: grouped-query attention with normalised queries and
  // keys; mixtral: grouped-query attention. FamilyDefaults says what else follows.
  std::string model_type = "deepseek_v3";
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;             // D
  int64_t num_hidden_layers = 0;
  int64_t first_k_dense_replace = 0;   // the first k layers have a dense MLP
  int64_t intermediate_size = 0;       // width of the dense MLP
  int64_t max_position_embeddings = 4096;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.006;    // DeepSeek-V3 technical report, section 4.2

  // Attention. MLA: ranks and widths of a head's parts. Grouped-query: head_dim.
  int64_t num_attention_heads = 0;     // H
  int64_t num_key_value_heads = 0;     // G; 0: as many as heads. MLA has no others
  int64_t head_dim = 0;                // grouped-query attention; 0: hidden_size / num_attention_heads
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
  std::string scoring_func = "sigmoid";  // sigmoid | softmax, over all experts
  // noaux_tc: a bias for selection only, group score = sum of its two best biased; greedy: no bias, no groups;
  // group_limited_greedy: no bias, group score = its best.
  std::string topk_method = "noaux_tc";
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1;

  // Multi-token prediction.
  int64_t num_nextn_predict_layers = 0;  // modules: depth d predicts the token d + 1 ahead
  std::string mtp_input = "post_norm";   // ours: a module gets the state below it after that one's last norm, or pre_norm

  bool IsMoeLayer(int64_t layer) const { return n_routed_experts > 0 && layer >= first_k_dense_replace; }
  bool IsMla() const { return model_type == "deepseek_v3" || model_type == "deepseek_v2"; }
  bool NormalisesQueriesAndKeys() const { return model_type == "qwen3_moe"; }
  bool HasRouterBias() const { return topk_method == "noaux_tc"; }
  int64_t key_value_heads() const { return num_key_value_heads > 0 ? num_key_value_heads : num_attention_heads; }
  int64_t qk_head_dim() const {  // width of a query head
    if (IsMla()) return qk_nope_head_dim + qk_rope_head_dim;
    return head_dim > 0 || num_attention_heads == 0 ? head_dim : hidden_size / num_attention_heads;
  }
  int64_t value_head_dim() const { return IsMla() ? v_head_dim : qk_head_dim(); }
  int64_t rope_dim() const { return IsMla() ? qk_rope_head_dim : qk_head_dim(); }  // rotated part of a head

  bool operator==(const ModelConfig&) const = default;
};

// Sets what a family's published code fixes where its config.json is silent: the router of everything but deepseek_v3 has
// softmax scores without bias or groups, and deepseek_v2 does not normalise.
inline void FamilyDefaults(ModelConfig& m) {
  if (m.model_type == "deepseek_v3") return;
  m.scoring_func = "softmax";
  m.topk_method = "greedy";
  m.norm_topk_prob = m.model_type != "deepseek_v2";
}

}  // namespace yardmaster
