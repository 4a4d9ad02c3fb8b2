#include "src/model/decoder.h"

namespace yardmaster {
namespace {

void Require(bool ok, const std::string& what, const std::string& hint = "") {
  if (!ok) throw ConfigError(what, "model", hint);
}

// What this model computes; the rest is refused by name rather than computed wrongly.
void CheckDeepseekV3(const ModelConfig& c) {
  Require(c.model_type == "deepseek_v3", StrCat("model_type ", c.model_type, " is not supported"),
          "deepseek_v3 is");
  Require(c.vocab_size > 0 && c.hidden_size > 0 && c.num_hidden_layers > 0 && c.num_attention_heads > 0,
          "vocab_size, hidden_size, num_hidden_layers and num_attention_heads must be positive");
  Require(c.q_lora_rank >= 0 && c.kv_lora_rank > 0,
          "kv_lora_rank must be positive, q_lora_rank not negative");
  Require(c.qk_nope_head_dim > 0 && c.v_head_dim > 0 && c.qk_rope_head_dim > 0 && c.qk_rope_head_dim % 2 == 0,
          "qk_nope_head_dim and v_head_dim must be positive, qk_rope_head_dim positive and even");
  Require(c.num_nextn_predict_layers == 0,
          "num_nextn_predict_layers: multi-token prediction is not supported", "set it to 0");
  const bool dense_layers = c.n_routed_experts == 0 || c.first_k_dense_replace > 0;
  Require(!dense_layers || c.intermediate_size > 0,
          "intermediate_size must be positive: there are dense layers");
  if (c.n_routed_experts == 0) return;
  Require(c.scoring_func == "sigmoid", StrCat("scoring_func ", c.scoring_func, " is not supported"),
          "sigmoid is");
  Require(c.topk_method == "noaux_tc", StrCat("topk_method ", c.topk_method, " is not supported"),
          "noaux_tc is");
  Require(c.moe_intermediate_size > 0 && c.n_shared_experts >= 0, "moe_intermediate_size must be positive");
  Require(c.n_group > 0 && c.n_routed_experts % c.n_group == 0,
          StrCat("n_group = ", c.n_group, " does not divide n_routed_experts = ", c.n_routed_experts));
  Require(c.topk_group > 0 && c.topk_group <= c.n_group,
          StrCat("topk_group = ", c.topk_group, " of n_group = ", c.n_group));
  const int64_t candidates = c.n_routed_experts / c.n_group * c.topk_group;
  Require(c.num_experts_per_tok > 0 && c.num_experts_per_tok <= candidates,
          StrCat("num_experts_per_tok = ", c.num_experts_per_tok, " of ", candidates,
                 " experts in the chosen groups"));
}

}  // namespace

std::unique_ptr<Model> MakeModel(const ModelConfig& config, const ModelOptions& options,
                                 Dispatcher* dispatcher) {
  CheckDeepseekV3(config);
  return std::make_unique<Decoder>(config, options, dispatcher);
}

}  // namespace yardmaster
