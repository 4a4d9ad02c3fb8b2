// File: src/tensor/state.h
//
// The unit of everything that survives a step: a named shard of a global tensor. The parameter registry
// (model/registry.h) hands lists of these to the optimizer, checkpoints, HF export and replica checks; none of them
// knows a layer.
#pragma once

#include <string>
#include <vector>

#include "src/tensor/shard_spec.h"
#include "src/tensor/tensor.h"

namespace yardmaster {

struct StateTensor {
  std::string name;  // global and unique: "model.layers.3.mlp.experts.gate_up_proj", "adamw.m/<parameter>"
  Tensor tensor;     // device memory of this rank; shape == spec.box.extent
  ShardSpec spec;
};

// What several ranks may hold alike, for comparing: of `box` of the global tensor, though not always in its
// shape (8-bit copies and their scales).
struct ReplicaTensor {
  std::string name;  // "model.norm.weight", "<parameter> (8-bit copy)"
  Tensor tensor;
  Box box;
};

}  // namespace yardmaster
