#include "src/ops/cuda/mtp_targets_cuda.h"

#include "kernels/loss/mtp_targets.h"
#include "kernels/step_control/step_control.h"
#include "src/ops/cuda/cuda_stream.h"

namespace yardmaster::cuda {
namespace {

template <class T>
T* PointerOrNull(const Tensor& t) {
  return t.defined() ? t.as<T>() : nullptr;
}

}  // namespace

void MtpTargets(const Stream& stream, const MtpTargetsArgs& g) {
  YM_CUDA_CHECK(stream, "MtpTargets",
                ShiftMtpTargets({.batch = g.tokens.dim(0),
                                 .sequence = g.tokens.dim(1),
                                 .depth = g.depth,
                                 .tokens = g.tokens.as<int32_t>(),
                                 .targets = g.targets.as<int32_t>(),
                                 .document_start = PointerOrNull<int32_t>(g.document_start),
                                 .inputs = PointerOrNull<int32_t>(g.inputs),
                                 .mtp_targets = PointerOrNull<int32_t>(g.mtp_targets),
                                 .valid = PointerOrNull<int64_t>(g.valid)},
                                CudaStream(stream)));
}

// The structs' layouts are checked in step_control_cuda.cc.
void MtpLossScale(const Stream& stream, const MtpLossScaleArgs& g) {
  YM_CUDA_CHECK(
      stream, "MtpLossScale",
      ScheduledLossScale(g.valid.as<int64_t>(), static_cast<const KernelSchedule*>(g.schedule.data()),
                         static_cast<const KernelStepState*>(g.state.data()), g.scale.as<double>(),
                         CudaStream(stream)));
}

}  // namespace yardmaster::cuda
