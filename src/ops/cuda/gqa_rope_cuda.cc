#include "src/ops/cuda/gqa_rope_cuda.h"

#include "kernels/rope/gqa_rope.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {

void GqaRope(const Stream& stream, const char* op, const GqaRopeArgs& g, bool backward) {
  YM_CUDA_CHECK(stream, op,
                RotateGqa(KernelTypeOf(g.q.dtype()),
                          {.tokens = g.q.dim(0),
                           .q_heads = static_cast<int>(g.q.dim(1)),
                           .k_heads = static_cast<int>(g.k.dim(1)),
                           .head = static_cast<int>(g.q.dim(2)),
                           .q = g.q.data(),
                           .k = g.k.data(),
                           .positions = g.positions.as<int32_t>(),
                           .table = g.table.data(),
                           .max_positions = g.table.dim(0),
                           .backward = backward},
                          CudaStream(stream)));
}

}  // namespace yardmaster::cuda
