// File: src/train/replica_check.h
#pragma once

#include <string>
#include <vector>

#include "src/base/agreement.h"
#include "src/device/device.h"
#include "src/tensor/state.h"

namespace yardmaster {

// Collective. Compares, by checksum, every tensor that several ranks hold of the same box
// (Engine::ReplicatedState). Throws AgreedError (kCorruption) on all ranks where copies differ,
// naming each tensor (the first few) and the ranks in the minority; with two copies, both.
void CheckReplicas(const std::vector<ReplicaTensor>& state, int64_t step, Device& device,
                   Agreement& agreement);

}  // namespace yardmaster
