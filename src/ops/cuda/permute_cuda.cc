#include "src/ops/cuda/permute_cuda.h"

#include "kernels/permute/permute.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"
#include "src/ops/cuda/workspaces.h"

namespace yardmaster::cuda {

void PermutePlan(const Stream& stream, const PermutePlanArgs& g, const Tensor& overflow, const Tensor& prefix,
                 const Tensor& starts) {
  YM_CUDA_CHECK(stream, "PermutePlan",
                PlanPermute({.idx = g.idx.as<int32_t>(),
                             .pairs = g.idx.elements(),
                             .expert_begin = g.expert_begin,
                             .experts = g.offsets.dim(0) - 1,
                             .rows = g.source.dim(0),
                             .offsets = g.offsets.as<int64_t>(),
                             .slot = g.slot.as<int64_t>(),
                             .source = g.source.as<int64_t>(),
                             .overflow = overflow.as<int32_t>(),
                             .chunk = kSortChunk,
                             .prefix = prefix.as<int64_t>(),
                             .starts = starts.as<int64_t>()},
                            CudaStream(stream)));
}

void Permute(const Stream& stream, const PermuteArgs& g) {
  YM_CUDA_CHECK(
      stream, "Permute",
      PermuteRows({.x = g.x_TD.data(),
                   .tokens = g.x_TD.dim(0),
                   .row_bytes = g.x_TD.dim(1) * DTypeBytes(g.x_TD.dtype()),
                   .source = g.source.as<int64_t>(),
                   .slot = g.slot.defined() ? g.slot.as<int64_t>() : nullptr,
                   .num_rows = g.offsets.as<int64_t>() + (g.offsets.dim(0) - 1),
                   .rows = g.x_RD.dim(0),
                   .top_k = g.top_k,
                   .out = g.x_RD.data(),
                   .w = g.w_TK.data(),
                   .weight_bytes = g.w_TK.defined() ? static_cast<int>(DTypeBytes(g.w_TK.dtype())) : 0,
                   .w_out = g.w_R.data()},
                  CudaStream(stream)));
}

void Unpermute(const Stream& stream, const UnpermuteArgs& g) {
  YM_CUDA_CHECK(stream, "Unpermute",
                UnpermuteRows(KernelTypeOf(g.y_TD.dtype()), g.y_RD.data(), g.slot.as<int64_t>(),
                              g.y_TD.dim(0), g.slot.dim(1), g.y_TD.dim(1), g.residual.data(), g.addend.data(),
                              g.y_TD.data(), g.dw_R.data(), g.dw_TK.data(), CudaStream(stream)));
}

}  // namespace yardmaster::cuda
