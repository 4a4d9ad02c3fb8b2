#include "src/ops/rmsnorm.h"

#include "src/ops/cpu/rmsnorm_cpu.h"
#include "src/ops/cuda/workspaces.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/rmsnorm_cuda.h"
#endif

namespace yardmaster {

void RmsNormForward(const Stream& stream, const RmsNormArgs& g) {
  const OpArgs check(stream, "RmsNormForward");
  check.Rank("x", g.x, 2);
  const DType type = check.WorkType("x", g.x);
  const Shape td = g.x.shape();
  check.Strided("x", g.x, type, td);
  check.Contiguous("w", g.w, type, {td[1]});
  check.Contiguous("y", g.y, type, td);
  check.Contiguous("rstd", g.rstd, OpArgs::AccumType(type), {td[0]});
  YM_CHECK(g.residual.defined() == g.h.defined(), "RmsNormForward: h goes with residual");
  if (g.residual.defined()) {
    check.Contiguous("residual", g.residual, type, td);
    check.Contiguous("h", g.h, type, td);
  }
  check.Traffic({&g.x, &g.residual, &g.h, &g.y, &g.rstd}, {td[0], td[1]});
  if (stream.dry() || td.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::RmsNormForward(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::RmsNormForward(stream, g);
#endif
  check.NoImplementation();
}

void RmsNormBackward(const Stream& stream, const RmsNormBackwardArgs& g, Arena& work) {
  const OpArgs check(stream, "RmsNormBackward");
  check.Rank("h", g.h, 2);
  const DType type = check.WorkType("h", g.h), accum = OpArgs::AccumType(type);
  const Shape td = g.h.shape();
  check.Strided("h", g.h, type, td);
  check.Contiguous("dy", g.dy, type, td);
  check.Contiguous("w", g.w, type, {td[1]});
  check.Contiguous("rstd", g.rstd, accum, {td[0]});
  if (g.dresidual.defined()) check.Contiguous("dresidual", g.dresidual, type, td);
  if (g.dh.defined()) check.Strided("dh", g.dh, type, td);
  if (g.dw.defined()) check.Contiguous("dw", g.dw, accum, {td[1]});
  ArenaScope scope(work);
  Tensor partial_dw;
  if (g.dw.defined()) {
    partial_dw =
        stream.target() == DeviceKind::kCuda
            ? work.Allocate("rmsnorm partial dw", accum, {cuda::RmsNormPartials(td[0], td[1]), td[1]})
            : work.Allocate("rmsnorm partial dw", DType::kF64, {cpu::kRmsNormPartials, td[1]});
  }
  check.Traffic({&g.dy, &g.h, &g.rstd, &g.dresidual, &g.dh}, {td[0], td[1]});
  if (stream.dry() || td[1] == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::RmsNormBackward(stream, g, partial_dw);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::RmsNormBackward(stream, g, partial_dw);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
