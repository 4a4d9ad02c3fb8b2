// File: src/hf/hf_transfer.h
//
// Weights from Hugging Face's tensors into a model, and weights or gradients out under their names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/hf/hf_checkpoint.h"
#include "src/hf/hf_mapping.h"
#include "src/model/registry.h"

namespace yardmaster {

// Fills masters, values and buffers of this rank from F32, BF16 or F64 tensors. Both sides are covered
// completely: a tensor that is missing, that no parameter takes, that has another shape or type is a
// CheckpointError, which lists them with their files. Copies of embedding and head in layers of
// multi-token prediction must be equal to the main model's.
void ImportHf(const Registry& registry, const HfCheckpoint& checkpoint, Device& device,
              HfNaming naming = HfNaming::kStandard);

enum class HfSource {
  kWeights,    // masters; buffers as they are
  kGradients,  // main gradients; buffers have none: zeros
};
// Every tensor under the hub's name, in the order of the registry, in host memory and the accumulator type.
// For one rank that holds everything.
std::vector<std::pair<std::string, HostTensor>> ExportHf(const Registry& registry, HfSource source, Device& device,
                                                         HfNaming naming = HfNaming::kStandard);

}  // namespace yardmaster
