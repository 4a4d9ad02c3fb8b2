// File: src/config/hf_config.h
//
// A published model's config.json (Hugging Face) as a ModelConfig: deepseek_v3, deepseek_v2, qwen3_moe and
// mixtral. Both styles are read: the hub's
// (`rope_scaling`, `rope_theta` at the top) and that of transformers 5 (`rope_parameters`, no `scoring_func`,
// `topk_method`, `moe_layer_freq`). Keys that say nothing about the mathematics of the model are ignored;
// keys that would change it into what this version does not compute are refused by name. Multi-token prediction
// layers stay in num_nextn_predict_layers, whether or not the weights hold them.
#pragma once

#include <string>

#include "src/config/model_config.h"

namespace yardmaster {

// `path` is the config.json itself. Throws ConfigError naming file and key, all errors at once.
ModelConfig LoadHfConfig(const std::string& path);
// The same for text that was read already; `file` names it in messages.
ModelConfig ParseHfConfig(const std::string& text, const std::string& file);

}  // namespace yardmaster
