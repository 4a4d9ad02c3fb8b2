#include "src/ops/cuda/router_balance_cuda.h"

#include "kernels/router/router_balance.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"
#include "src/ops/cuda/workspaces.h"

namespace yardmaster::cuda {
namespace {

BalanceShape ShapeOf(const RouterSpec& spec, const RouterBalanceArgs& g) {
  return {.sequences = g.load.dim(0),
          .tokens = g.scores.dim(0) / g.load.dim(0),
          .chunk = kBalanceChunk,
          .experts = static_cast<int>(spec.num_experts),
          .top_k = static_cast<int>(spec.top_k),
          .scoring = static_cast<RouterScoring>(spec.score),
          .share = g.share};
}

const int64_t* PreviousOf(const RouterBalanceArgs& g) {
  return g.previous.defined() ? g.previous.as<int64_t>() : nullptr;
}

}  // namespace

void RouterBalanceForward(const Stream& stream, const RouterSpec& spec, const RouterBalanceArgs& g,
                          const Tensor& mass, const Tensor& squares) {
  YM_CUDA_CHECK(
      stream, "RouterBalanceForward",
      SumBalance(KernelTypeOf(g.scores.dtype()), ShapeOf(spec, g), g.scores.data(), g.logits.data(),
                 PreviousOf(g), g.load.as<int64_t>(), g.sums.defined() ? g.sums.as<double>() : nullptr,
                 {.mass = mass.as<double>(), .squares = squares.as<double>()}, CudaStream(stream)));
}

void RouterBalanceBackward(const Stream& stream, const RouterSpec& spec, const RouterBalanceWeights& w,
                           const RouterBalanceArgs& g, const Tensor& dlogits) {
  YM_CUDA_CHECK(
      stream, "RouterBalanceBackward",
      BalanceBackward(
          KernelTypeOf(g.scores.dtype()), ShapeOf(spec, g),
          {.sequence = w.sequence, .micro_batch = w.micro_batch, .global_batch = w.global_batch, .z = w.z},
          g.scores.data(), g.logits.data(), PreviousOf(g), g.load.as<int64_t>(), dlogits.data(),
          CudaStream(stream)));
}

}  // namespace yardmaster::cuda
