#include "src/ops/cuda/random_normal_cuda.h"

#include "kernels/random/normal.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {
namespace {

// The last axes of the box; missing ones have one element.
NormalBox BoxOf(const ShardSpec& spec) {
  NormalBox box{.extent = {1, 1, 1}, .begin = {}, .global1 = 1, .global2 = 1};
  const int rank = spec.global_shape.rank(), missing = 3 - rank;
  for (int axis = 0; axis < rank; ++axis) {
    box.extent[missing + axis] = spec.box.extent[static_cast<size_t>(axis)];
    box.begin[missing + axis] = spec.box.begin[static_cast<size_t>(axis)];
  }
  if (rank >= 2) box.global1 = spec.global_shape[rank - 2];
  if (rank >= 1) box.global2 = spec.global_shape[rank - 1];
  return box;
}

}  // namespace

void RandomNormal(const Stream& stream, const RandomNormalArgs& g) {
  const bool rounds = g.copy.defined() && g.copy.dtype() == DType::kBF16;
  YM_CUDA_CHECK(stream, "RandomNormal",
                FillNormal(KernelTypeOf(g.y.dtype()), BoxOf(g.spec), g.seed, g.number_stream, g.scale,
                           g.y.data(), rounds ? g.copy.data() : nullptr, CudaStream(stream)));
  if (g.copy.defined() && !rounds) {
    YM_CUDA_CHECK(stream, "RandomNormal",
                  cudaMemcpyAsync(g.copy.data(), g.y.data(), static_cast<size_t>(g.y.bytes()),
                                  cudaMemcpyDeviceToDevice, CudaStream(stream)));
  }
}

}  // namespace yardmaster::cuda
