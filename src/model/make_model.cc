#include <algorithm>

#include "src/config/validate.h"
#include "src/model/decoder.h"

namespace yardmaster {
namespace {

void Require(bool ok, const std::string& what, const std::string& hint = "") {
  if (!ok) throw ConfigError(what, "model", hint);
}

template <size_t n>
void RequireOneOf(const char* field, const std::string& value, const char* const (&choices)[n]) {
  std::vector<std::string> names(choices, choices + n);
  Require(std::find(names.begin(), names.end(), value) != names.end(), StrCat(field, " ", value, " is not supported"),
          StrJoin(names, ", ") + " are");
}

// What this model computes; the rest is refused by name rather than computed wrongly.
void CheckModel(const ModelConfig& c) {
  RequireOneOf("model_type", c.model_type, {"deepseek_v3", "deepseek_v2", "qwen3_moe", "mixtral"});
  RequireOneOf("scoring_func", c.scoring_func, {"sigmoid", "softmax"});
  RequireOneOf("topk_method", c.topk_method, {"noaux_tc", "greedy", "group_limited_greedy"});
  RequireOneOf("mtp_input", c.mtp_input, {"post_norm", "pre_norm"});
  Require(c.vocab_size > 0 && c.hidden_size > 0 && c.num_hidden_layers > 0 && c.num_attention_heads > 0,
          "vocab_size, hidden_size, num_hidden_layers and num_attention_heads must be positive");
  for (const auto& [name, size] : {std::pair{"q_lora_rank", c.q_lora_rank},
                                   {"kv_lora_rank", c.kv_lora_rank},
                                   {"qk_nope_head_dim", c.qk_nope_head_dim},
                                   {"qk_rope_head_dim", c.qk_rope_head_dim},
                                   {"v_head_dim", c.v_head_dim},
                                   {"head_dim", c.head_dim},
                                   {"num_key_value_heads", c.num_key_value_heads},
                                   {"n_routed_experts", c.n_routed_experts},
                                   {"n_shared_experts", c.n_shared_experts},
                                   {"num_experts_per_tok", c.num_experts_per_tok},
                                   {"num_nextn_predict_layers", c.num_nextn_predict_layers}}) {
    Require(size >= 0, StrCat(name, " is negative"));
  }
  Require(c.n_group > 0 && c.topk_group > 0, "n_group and topk_group must be positive");
  std::vector<std::string> errors;
  ValidateModel(
      c, [](const std::string&) { return true; },
      [&](const std::string& field, const std::string& message) { errors.push_back(StrCat(field, ": ", message)); });
  Require(errors.empty(), StrJoin(errors, "\n"));
}

}  // namespace

std::unique_ptr<Model> MakeModel(const ModelConfig& config, const ModelOptions& options,
                                 Dispatcher* dispatcher) {
  CheckModel(config);
  return std::make_unique<Decoder>(config, options, dispatcher);
}

}  // namespace yardmaster
