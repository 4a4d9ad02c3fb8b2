#include "src/hf/hf_model_config.h"

#include <nlohmann/json.hpp>

#include "src/config/hf_config.h"

namespace yardmaster {

ModelConfig LoadHfModelConfig(const HfCheckpoint& checkpoint) {
  const std::string path = JoinPath(checkpoint.directory(), "config.json");
  if (!PathExists(path)) throw ConfigError("no such file", path, "a model directory holds config.json");
  std::string text = ReadFile(path);
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && !json.contains("q_lora_rank")) {
    const std::string attention = "model.layers.0.self_attn.";
    if (checkpoint.Has(attention + "q_proj.weight")) {
      json["q_lora_rank"] = nullptr;
      text = json.dump();
    } else if (checkpoint.Has(attention + "q_a_proj.weight")) {
      json["q_lora_rank"] = checkpoint.Get(attention + "q_a_proj.weight").dim(0);
      text = json.dump();
    }
  }
  ModelConfig config = ParseHfConfig(text, path);
  int64_t modules = 0;
  const auto holds = [&](int64_t depth) {
    return checkpoint.Has(StrCat("model.layers.", config.num_hidden_layers + depth, ".eh_proj.weight"));
  };
  while (modules < config.num_nextn_predict_layers && holds(modules)) ++modules;
  config.num_nextn_predict_layers = modules;
  return config;
}

double HfAuxLossCoefficient(const HfCheckpoint& checkpoint) {
  const std::string path = JoinPath(checkpoint.directory(), "config.json");
  const nlohmann::json json = nlohmann::json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("output_router_logits", nlohmann::json(false)) != true) return 0;
  const nlohmann::json coefficient =
      json.value("router_aux_loss_coef", nlohmann::json(0.001));  // transformers' default
  if (!coefficient.is_number()) throw ConfigError("router_aux_loss_coef: expected a number", path);
  return coefficient.get<double>();
}

}  // namespace yardmaster
