#include "src/ops/cuda/router_capacity_cuda.h"

#include "kernels/router/router_capacity.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"
#include "src/ops/cuda/workspaces.h"

namespace yardmaster::cuda {

void RouterCapacity(const Stream& stream, const RouterCapacityArgs& g, const Tensor& pairs,
                    const Tensor& starts, const Tensor& prefix) {
  YM_CUDA_CHECK(stream, "RouterCapacity",
                KeepWithinCapacity(KernelTypeOf(g.w.dtype()),
                                   {.idx = g.idx.as<int32_t>(),
                                    .pairs = g.idx.elements(),
                                    .experts = g.num_experts,
                                    .capacity = g.capacity,
                                    .by_weight = g.policy == DropPolicy::kProbs,
                                    .kept = g.kept_idx.as<int32_t>(),
                                    .dropped = g.dropped.defined() ? g.dropped.as<double>() : nullptr,
                                    .chunk = kSortChunk,
                                    .prefix = prefix.as<int64_t>(),
                                    .starts = starts.as<int64_t>(),
                                    .by_expert = pairs.as<int64_t>()},
                                   g.w.data(), CudaStream(stream)));
}

}  // namespace yardmaster::cuda
