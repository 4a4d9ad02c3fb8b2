// File: src/train/state_hash.h
#pragma once

#include <string>
#include <vector>

#include "src/base/agreement.h"
#include "src/device/device.h"
#include "src/tensor/state.h"

namespace yardmaster {

// SHA-256 over names, boxes and bytes of all state of all ranks, in rank order: equal runs of the same layout have equal hashes.
// Reads device memory; collective.
std::string StateHash(const std::vector<StateTensor>& state, Device& device, Agreement& agreement);

}  // namespace yardmaster
