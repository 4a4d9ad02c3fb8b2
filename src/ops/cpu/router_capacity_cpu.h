// File: src/ops/cpu/router_capacity_cpu.h
#pragma once

#include "src/ops/router_capacity.h"

namespace yardmaster::cpu {

// Workspace: `pairs` int64 [T * K], `begins` int64 [E + 1].
void RouterCapacity(const Stream& stream, const RouterCapacityArgs& args, const Tensor& pairs,
                    const Tensor& begins);

}  // namespace yardmaster::cpu
