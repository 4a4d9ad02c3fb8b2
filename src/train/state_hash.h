// File: src/train/state_hash.h
#pragma once

#include <string>
#include <vector>

#include "src/base/agreement.h"
#include "src/device/device.h"
#include "src/tensor/state.h"

namespace yardmaster {

// A hash of all state of all ranks by its global tensors: the same bits give the same hash in every layout.
// Copies of a box that several ranks hold count once. Reads device memory; collective.
std::string StateHash(const std::vector<StateTensor>& state, Device& device, Agreement& agreement);

}  // namespace yardmaster
