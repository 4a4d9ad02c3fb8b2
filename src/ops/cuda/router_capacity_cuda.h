// File: src/ops/cuda/router_capacity_cuda.h
#pragma once

#include "src/ops/router_capacity.h"

namespace yardmaster::cuda {

// Arguments checked. Scratch: pairs int64 [T K], starts int64 [E + 1], prefix int64 [E, SortChunks(T K)].
void RouterCapacity(const Stream& stream, const RouterCapacityArgs& args, const Tensor& pairs,
                    const Tensor& starts, const Tensor& prefix);

}  // namespace yardmaster::cuda
