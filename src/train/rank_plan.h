// File: src/train/rank_plan.h
#pragma once

#include <cstdint>
#include <vector>

#include "src/train/engine.h"

namespace yardmaster {

// The memory of rank 0 of a run on `ranks` ranks with devices of this kind, from the config alone: the code of
// a run on the dry device, with groups that have a size and nobody in them. On cuda rows are taken to travel as
// ep.transport says, auto: over peer memory. What is not Yardmaster's arenas comes on top: the CUDA context,
// libraries, NCCL's buffers. The layout must be possible (ValidateLayout). ConfigError in a build without CUDA
// for a transport by NCCL.
std::vector<ArenaSize> PlanOfRank(const Config& config, int64_t ranks, DeviceKind device);

}  // namespace yardmaster
