#include "src/ops/cuda/embedding_cuda.h"

#include "kernels/embedding/embedding.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"
#include "src/ops/cuda/workspaces.h"

namespace yardmaster::cuda {

void EmbeddingForward(const Stream& stream, const Tensor& ids, const Tensor& table_VD, const Tensor& x_TD) {
  YM_CUDA_CHECK(stream, "EmbeddingForward",
                EmbeddingRows(KernelTypeOf(x_TD.dtype()), ids.as<int32_t>(), x_TD.dim(0), x_TD.dim(1),
                              table_VD.data(), x_TD.data(), CudaStream(stream)));
}

void EmbeddingBackward(const Stream& stream, const Tensor& ids, const Tensor& dx_TD, double beta,
                       const Tensor& dtable_VD, const Tensor& squares, const Tensor& order,
                       const Tensor& prefix, const Tensor& starts) {
  const EmbeddingDigits digits(dtable_VD.dim(0));
  const EmbeddingSortScratch scratch{.chunk = kSortChunk,
                                     .passes = digits.passes,
                                     .bits = digits.bits,
                                     .order = order.as<int32_t>(),
                                     .prefix = prefix.as<int64_t>(),
                                     .starts = starts.as<int64_t>()};
  const int64_t D = dtable_VD.dim(1);
  YM_CHECK_EQ(EmbeddingSquares(KernelTypeOf(dx_TD.dtype()), D), EmbeddingRowSquares(DTypeBytes(dx_TD.dtype()), D),
              "planned for");
  YM_CUDA_CHECK(
      stream, "EmbeddingBackward",
      EmbeddingGradient(KernelTypeOf(dx_TD.dtype()), ids.as<int32_t>(), dx_TD.dim(0), dtable_VD.dim(0),
                        dtable_VD.dim(1), dx_TD.data(), beta, dtable_VD.data(),
                        squares.defined() ? squares.as<double>() : nullptr, scratch, CudaStream(stream)));
}

}  // namespace yardmaster::cuda
