#include "src/ops/swiglu.h"

#include "src/ops/cpu/swiglu_cpu.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/swiglu_cuda.h"
#endif

namespace yardmaster {

void SwigluForward(const Stream& stream, const SwigluArgs& g) {
  const OpArgs check(stream, "SwigluForward");
  check.Rank("act", g.act, 2);
  const DType type = check.WorkType("act", g.act), accum = OpArgs::AccumType(type);
  const int64_t R = g.act.dim(0), F = g.act.dim(1);
  check.Contiguous("gate_up", g.gate_up, type, {R, 2 * F});
  check.Contiguous("act", g.act, type, {R, F});
  if (g.w.defined()) check.Contiguous("w", g.w, accum, {R});
  if (g.num_rows.defined()) check.Contiguous("num_rows", g.num_rows, DType::kI64, {1});
  check.Traffic({&g.gate_up, &g.w, &g.act}, {R, F});
  if (stream.dry() || g.act.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::SwigluForward(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::SwigluForward(stream, g);
#endif
  check.NoImplementation();
}

void SwigluBackward(const Stream& stream, const SwigluBackwardArgs& g) {
  const OpArgs check(stream, "SwigluBackward");
  check.Rank("dact", g.dact, 2);
  const DType type = check.WorkType("dact", g.dact), accum = OpArgs::AccumType(type);
  const int64_t R = g.dact.dim(0), F = g.dact.dim(1);
  check.Contiguous("dact", g.dact, type, {R, F});
  check.Contiguous("gate_up", g.gate_up, type, {R, 2 * F});
  check.Contiguous("dgate_up", g.dgate_up, type, {R, 2 * F});
  YM_CHECK(g.w.defined() == g.dw.defined(), "SwigluBackward: dw goes with w");
  if (g.w.defined()) {
    check.Contiguous("w", g.w, accum, {R});
    check.Contiguous("dw", g.dw, accum, {R});
  }
  if (g.act.defined()) check.Contiguous("act", g.act, type, {R, F});
  if (g.num_rows.defined()) check.Contiguous("num_rows", g.num_rows, DType::kI64, {1});
  check.Traffic({&g.dact, &g.gate_up, &g.w, &g.dgate_up, &g.dw, &g.act}, {R, F});
  if (stream.dry() || g.dact.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::SwigluBackward(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::SwigluBackward(stream, g);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
