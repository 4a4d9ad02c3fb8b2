// File: src/checkpoint/cover.h
#pragma once

#include <string>
#include <vector>

#include "src/tensor/shard_spec.h"

namespace yardmaster {

// One piece of a global tensor and who has it ("rank 3", "shard_00003.safetensors"), for messages.
struct CoverPiece {
  Box box;
  std::string owner;
};

std::string BoxText(const Box& box);  // "[0:4, 128:256]"

// Whether the pieces tile the global shape: each within it, no two overlapping, none missing. "" or what is
// wrong. Boxes are taken as they come: any rank, negative numbers, huge numbers.
std::string CoverProblem(const Shape& global_shape, std::vector<CoverPiece> pieces);

}  // namespace yardmaster
