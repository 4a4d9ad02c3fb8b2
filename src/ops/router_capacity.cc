#include "src/ops/router_capacity.h"

#include <algorithm>
#include <cmath>

#include "src/ops/cpu/router_capacity_cpu.h"
#include "src/ops/cuda/workspaces.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/router_capacity_cuda.h"
#endif

namespace yardmaster {

int64_t ExpertCapacity(int64_t tokens, int64_t top_k, int64_t num_experts, double factor) {
  const double balanced =
      static_cast<double>(tokens) * static_cast<double>(top_k) / static_cast<double>(num_experts);
  return std::min(tokens,
                  static_cast<int64_t>(std::ceil(balanced * factor)));  // an expert has a token once at most
}

void RouterCapacity(const Stream& stream, const RouterCapacityArgs& g, Arena& work) {
  const OpArgs check(stream, "RouterCapacity");
  check.Rank("idx", g.idx, 2);
  const Shape shape = g.idx.shape();
  check.Contiguous("idx", g.idx, DType::kI32, shape);
  check.Contiguous("w", g.w, check.ComputeType("w", g.w), shape);
  check.Contiguous("kept_idx", g.kept_idx, DType::kI32, shape);
  if (g.dropped.defined()) check.Contiguous("dropped", g.dropped, DType::kF64, {1});
  YM_CHECK(g.num_experts > 0 && g.capacity >= 0, "RouterCapacity: ", g.capacity, " pairs for each of ",
           g.num_experts);
  ArenaScope scope(work);
  const Tensor pairs = work.Allocate("pairs by expert", DType::kI64, {shape.elements()});
  const Tensor begins = work.Allocate("first pair of each expert", DType::kI64, {g.num_experts + 1});
  Tensor prefix;
  if (stream.target() == DeviceKind::kCuda)
    prefix = work.Allocate("pairs of chunks", DType::kI64, {g.num_experts, cuda::SortChunks(shape.elements())});
  if (stream.dry() || shape.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::RouterCapacity(stream, g, pairs, begins);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::RouterCapacity(stream, g, pairs, begins, prefix);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
