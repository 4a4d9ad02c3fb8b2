// File: src/train/machine_memory.h
#pragma once

#include <vector>

#include "src/train/engine.h"

namespace yardmaster {

// Throws ConfigError with the memory table when the planned arenas do not fit into what the device has free.
// On cpu: what this machine has, less what other ranks on it need too.
void CheckFits(const std::vector<ArenaSize>& planned, Device& device, int ranks_on_machine);

}  // namespace yardmaster
