// File: src/train/machine_memory.h
#pragma once

#include <vector>

#include "src/train/engine.h"

namespace yardmaster {

// Throws ConfigError with the memory table when the planned arenas do not fit. On cpu: those of all ranks on the
// machine into what it has. On cuda: into what the GPU has free or, where ranks share it and may have taken
// their part already, those of all of them into what it has.
void CheckFits(const std::vector<ArenaSize>& planned, const Device& device, int ranks_on_device);

}  // namespace yardmaster
