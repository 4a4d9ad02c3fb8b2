// File: src/hf/hf_mapping.h
//
// Our parameters and Hugging Face's tensors. Most are the same by name and shape. Ours fuse
//   mlp.gate_up_proj [2I, D]           = gate_proj.weight [I, D] over up_proj.weight [I, D]   (dense and shared MLP)
//   mlp.experts.gate_up_proj [E, 2F, D] = experts.<e>.gate_proj.weight over experts.<e>.up_proj.weight, for each e
//   mlp.experts.down_proj [E, D, F]    = experts.<e>.down_proj.weight, for each e
// Mixtral's hub names say block_sparse_moe for mlp and w1, w3, w2 for gate_proj, up_proj, down_proj.
// Files that transformers 5 wrote without converting back hold the two fused expert tensors under our own
// names; import takes either. Export writes the hub's names.
#pragma once

#include <string>
#include <vector>

#include "src/tensor/shard_spec.h"

namespace yardmaster {

enum class HfNaming { kStandard, kMixtral };
HfNaming HfNamingOf(const std::string& model_type);

struct HfPiece {
  std::string name;  // the hub's
  Shape shape;
  Box box;  // the part of our global tensor that it is, in the same element order
};

// The pieces that together are the parameter (or buffer) `name`; they cover it exactly once.
std::vector<HfPiece> HfPieces(const std::string& name, const Shape& global_shape, HfNaming naming = HfNaming::kStandard);

}  // namespace yardmaster
