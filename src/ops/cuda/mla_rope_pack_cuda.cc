#include "src/ops/cuda/mla_rope_pack_cuda.h"

#include "kernels/rope/mla_rope_pack.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {
namespace {

MlaRopeShape ShapeOf(const Tensor& q, const Tensor& rope, const Tensor& v, const Tensor& positions,
                     const Tensor& table) {
  const int64_t P = rope.dim(1);
  return {.tokens = q.dim(0),
          .heads = static_cast<int>(q.dim(1)),
          .nope = static_cast<int>(q.dim(2) - P),
          .rope = static_cast<int>(P),
          .v = static_cast<int>(v.dim(2)),
          .ld_rope = rope.ld(),
          .positions = positions.as<int32_t>(),
          .table = table.data(),
          .max_positions = table.dim(0)};
}

}  // namespace

void MlaRopePackForward(const Stream& stream, const MlaRopePackArgs& g) {
  YM_CUDA_CHECK(stream, "MlaRopePackForward",
                MlaRopePack(KernelTypeOf(g.q.dtype()), ShapeOf(g.q, g.k_rope, g.v_out, g.positions, g.table),
                            g.q.data(), g.kv.data(), g.k_rope.data(), g.q_out.data(), g.k_out.data(),
                            g.v_out.data(), CudaStream(stream)));
}

void MlaRopePackBackward(const Stream& stream, const MlaRopePackBackwardArgs& g) {
  YM_CUDA_CHECK(stream, "MlaRopePackBackward",
                MlaRopeUnpack(KernelTypeOf(g.dq_out.dtype()),
                              ShapeOf(g.dq_out, g.dk_rope, g.dv_out, g.positions, g.table), g.dq_out.data(),
                              g.dk_out.data(), g.dv_out.data(), g.dq.data(), g.dkv.data(), g.dk_rope.data(),
                              CudaStream(stream)));
}

}  // namespace yardmaster::cuda
