#include "src/ops/cuda/step_control_cuda.h"

#include <cstddef>

#include "kernels/grouped_gemm/tile_squares.h"
#include "kernels/step_control/step_control.h"
#include "src/config/schedule_config.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {
namespace {

#define YM_SAME_PLACE(Ours, Theirs, field) static_assert(offsetof(Ours, field) == offsetof(Theirs, field))

static_assert(sizeof(StepState) == sizeof(KernelStepState));
YM_SAME_PLACE(StepState, KernelStepState, step);
YM_SAME_PLACE(StepState, KernelStepState, tokens);
YM_SAME_PLACE(StepState, KernelStepState, skipped);
YM_SAME_PLACE(StepState, KernelStepState, verdict);
YM_SAME_PLACE(StepState, KernelStepState, overflow);
YM_SAME_PLACE(StepState, KernelStepState, grad_norm);
YM_SAME_PLACE(StepState, KernelStepState, clip_factor);
YM_SAME_PLACE(StepState, KernelStepState, learning_rate);
YM_SAME_PLACE(StepState, KernelStepState, bias_speed);
YM_SAME_PLACE(StepState, KernelStepState, loss);
static_assert(sizeof(DeviceSchedule) == sizeof(KernelSchedule));
YM_SAME_PLACE(DeviceSchedule, KernelSchedule, num_segments);
YM_SAME_PLACE(DeviceSchedule, KernelSchedule, kind);
YM_SAME_PLACE(DeviceSchedule, KernelSchedule, until_tokens);
YM_SAME_PLACE(DeviceSchedule, KernelSchedule, from);
YM_SAME_PLACE(DeviceSchedule, KernelSchedule, to);
static_assert(static_cast<int>(StepVerdict::kOk) == 0 && static_cast<int>(StepVerdict::kNonFinite) == 1 &&
              static_cast<int>(StepVerdict::kOverflow) == 2);
static_assert(static_cast<int>(SegmentKind::kConstant) == 0 && static_cast<int>(SegmentKind::kLinear) == 1 &&
              static_cast<int>(SegmentKind::kCosine) == 2);

KernelStepState* StateOf(const Tensor& state) { return static_cast<KernelStepState*>(state.data()); }

}  // namespace

void SumSquares(const Stream& stream, const std::vector<SumSquaresPart>& parts, int64_t chunk_rows) {
  SquaresList list;
  DType type = DType::kF32;  // of the tensors in the list
  const auto launch = [&] {
    if (list.count == 0) return;
    YM_CUDA_CHECK(stream, "SumSquares",
                  SumSquaresChunks(KernelTypeOf(type), &list, chunk_rows, CudaStream(stream)));
    list.count = 0;
  };
  for (const auto& [x, partials] : parts) {
    if (x.elements() == 0) continue;
    if (list.count == kSquaresTensors || x.dtype() != type) launch();
    type = x.dtype();
    const int64_t matrices = x.shape().rank() == 3 ? x.dim(0) : 1;
    list.tensors[list.count++] = {.x = x.data(),
                                  .partials = partials.as<double>(),
                                  .matrices = matrices,
                                  .rows = x.rows() / matrices,
                                  .cols = x.cols(),
                                  .first_block = 0};
  }
  launch();
}

void SumNormAddends(const Stream& stream, const std::vector<NormAddends>& parts) {
  AddendsList list;
  const auto launch = [&] {
    if (list.count == 0) return;
    YM_CUDA_CHECK(stream, "SumNormAddends", SumAddendsOfChunks(&list, CudaStream(stream)));
    list.count = 0;
  };
  for (const auto& [addends, per_chunk, partials] : parts) {
    if (addends.elements() == 0) continue;
    if (list.count == kSquaresTensors) launch();
    list.tensors[list.count++] = {.addends = addends.as<double>(),
                                  .partials = partials.as<double>(),
                                  .n = addends.elements(),
                                  .per_chunk = per_chunk,
                                  .first_warp = 0};
  }
  launch();
}

void SumTileSquares(const Stream& stream, const Tensor& x, int64_t per_chunk, const Tensor& addends) {
  const int64_t K = x.cols(), L = x.shape().rank() == 3 ? x.dim(0) : 1;
  YM_CHECK(8 * K % per_chunk == 0, "tiles of ", per_chunk, " addends a chunk of ", K, " columns");
  const TileSquaresArgs args{.x = x.as<float>(),
                             .matrices = L,
                             .n = x.rows() / L,
                             .k = K,
                             .columns = static_cast<int>(8 * K / per_chunk),
                             .squares = addends.as<double>()};
  YM_CUDA_CHECK(stream, "SumTileSquares", TileSquares(args, CudaStream(stream)));
}

void JudgeStep(const Stream& stream, const JudgeStepArgs& g) {
  YM_CUDA_CHECK(
      stream, "JudgeStep",
      JudgeStepState(g.partials.as<double>(), g.partials.elements(), g.loss_sum.as<double>(), g.loss_scale,
                     g.clip_norm, static_cast<const KernelSchedule*>(g.learning_rate.data()),
                     static_cast<const KernelSchedule*>(g.bias_speed.data()), StateOf(g.state),
                     CudaStream(stream)));
}

void FinishStep(const Stream& stream, int64_t tokens_of_step, const Tensor& state) {
  YM_CUDA_CHECK(stream, "FinishStep", FinishStepState(tokens_of_step, StateOf(state), CudaStream(stream)));
}

void RouterBiasUpdate(const Stream& stream, const RouterBiasUpdateArgs& g) {
  const KernelType type = g.bias.defined() ? KernelTypeOf(g.bias.dtype()) : KernelType::kF32;
  YM_CUDA_CHECK(
      stream, "RouterBiasUpdate",
      UpdateRouterBias(type, g.counts.as<int64_t>(), g.counts.dim(0), StateOf(g.state), g.bias.data(),
                       g.previous.defined() ? g.previous.as<int64_t>() : nullptr, CudaStream(stream)));
}

}  // namespace yardmaster::cuda
