// File: src/checkpoint/save_plan.h
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/agreement.h"
#include "src/tensor/state.h"

namespace yardmaster {

struct SavePlan {
  std::vector<const StateTensor*> mine;  // what this rank writes; points into the tensors given
  uint64_t total_bytes = 0;              // of the tensors of all ranks; known on rank 0
};

// Collective. Decides which rank writes what: of ranks that hold the same box of a tensor the lowest writes
// it; empty boxes are written by none. Throws CheckpointError on all ranks if the step, a dtype or a global
// shape differs between ranks, a rank holds two boxes of one tensor, boxes overlap in part, or a tensor is
// not covered.
SavePlan PlanSave(int64_t step, const std::vector<StateTensor>& tensors, Agreement& world);

}  // namespace yardmaster
