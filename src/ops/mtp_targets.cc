#include "src/ops/mtp_targets.h"

#include "src/ops/cpu/mtp_targets_cpu.h"
#include "src/ops/op_args.h"
#include "src/ops/step_control.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/mtp_targets_cuda.h"
#endif

namespace yardmaster {

void MtpTargets(const Stream& stream, const MtpTargetsArgs& g) {
  const OpArgs check(stream, "MtpTargets");
  check.Rank("tokens", g.tokens, 2);
  const Shape shape = g.tokens.shape();
  check.Contiguous("tokens", g.tokens, DType::kI32, shape);
  check.Contiguous("targets", g.targets, DType::kI32, shape);
  if (g.document_start.defined()) check.Contiguous("document_start", g.document_start, DType::kI32, shape);
  YM_CHECK(g.depth >= 1, "MtpTargets: depth ", g.depth);
  YM_CHECK(g.inputs.defined() == g.mtp_targets.defined(), "MtpTargets: inputs go with mtp_targets");
  if (g.inputs.defined()) {
    check.Contiguous("inputs", g.inputs, DType::kI32, shape);
    check.Contiguous("mtp_targets", g.mtp_targets, DType::kI32, shape);
  }
  if (g.valid.defined()) check.Contiguous("valid", g.valid, DType::kI64, {1});
  if (stream.dry() || shape.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::MtpTargets(g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::MtpTargets(stream, g);
#endif
  check.NoImplementation();
}

void MtpLossScale(const Stream& stream, const MtpLossScaleArgs& g) {
  const OpArgs check(stream, "MtpLossScale");
  check.Contiguous("valid", g.valid, DType::kI64, {1});
  check.Contiguous("schedule", g.schedule, DType::kU8, {static_cast<int64_t>(sizeof(DeviceSchedule))});
  check.Contiguous("state", g.state, DType::kU8, {static_cast<int64_t>(sizeof(StepState))});
  check.Contiguous("scale", g.scale, DType::kF64, {1});
  if (stream.dry()) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::MtpLossScale(g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::MtpLossScale(stream, g);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
