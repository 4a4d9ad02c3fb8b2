// File: src/hf/hf_model_config.h
#pragma once

#include "src/config/model_config.h"
#include "src/hf/hf_checkpoint.h"

namespace yardmaster {

// config.json of the checkpoint's directory (config/hf_config.h). Tools that drop null values leave out
// q_lora_rank; the weights then say it: layer 0 has q_proj (0: projected directly), or q_a_proj with as many
// rows as the rank. Multi-token prediction layers count that the config names and the weights hold. Throws
// ConfigError.
ModelConfig LoadHfModelConfig(const HfCheckpoint& checkpoint);

// router_aux_loss_coef of config.json where it asks for router logits, which makes transformers add its
// balance loss; else 0.
double HfAuxLossCoefficient(const HfCheckpoint& checkpoint);

}  // namespace yardmaster
