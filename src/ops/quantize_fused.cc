#include "src/ops/quantize_fused.h"

#include "src/ops/cpu/quantize_fused_cpu.h"
#include "src/ops/quantize_checks.h"
#include "src/ops/swiglu.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/quantize_fused_cuda.h"
#endif

namespace yardmaster {

void QuantizeSwiglu(const Stream& stream, const QuantizeSwigluArgs& g, Arena& work) {
  const OpArgs check(stream, "QuantizeSwiglu");
  check.Rank("gate_up", g.gate_up, 2);
  const int64_t R = g.gate_up.dim(0), F = g.gate_up.dim(1) / 2;
  check.Contiguous("gate_up", g.gate_up, RecipeWorkType(stream), {R, 2 * F});
  if (g.w.defined()) check.Contiguous("w", g.w, DType::kF32, {R});
  CheckCopies(stream, check, g.format, g.rows, g.cols, R, F, CheckOffsets(check, g.offsets));
  check.Traffic({&g.gate_up, &g.rows.codes, &g.rows.scales, &g.cols.codes, &g.cols.scales}, {R, F});
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::QuantizeSwiglu(stream, g);
#endif
  if (stream.target() == DeviceKind::kCuda) return;  // the dry device that plans for it: no workspace
  ArenaScope scope(work);
  const Tensor act = work.Allocate("quantize_swiglu/act", DType::kF32, {R, F});
  SwigluForward(stream, {.gate_up = g.gate_up, .w = g.w, .num_rows = NumRows(g.offsets), .act = act});
  QuantizeRows(stream, {.format = g.format, .x = act, .offsets = g.offsets, .rows = g.rows, .cols = g.cols});
}

void QuantizeNormed(const Stream& stream, const QuantizeNormedArgs& g, Arena& work) {
  const OpArgs check(stream, "QuantizeNormed");
  check.Rank("h", g.h, 2);
  const int64_t R = g.h.dim(0), D = g.h.dim(1);
  check.Strided("h", g.h, RecipeWorkType(stream), {R, D});
  check.Contiguous("rstd", g.rstd, DType::kF32, {R});
  check.Contiguous("weight", g.weight, RecipeWorkType(stream), {D});
  CheckCopies(stream, check, g.format, g.rows, g.cols, R, D, CheckOffsets(check, g.offsets));
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::QuantizeNormed(stream, g);
#endif
  if (stream.target() == DeviceKind::kCuda) return;
  ArenaScope scope(work);
  const Tensor y = work.Allocate("quantize_normed/y", DType::kF32, {R, D});
  if (!stream.dry()) cpu::Normed(stream, g, y);
  QuantizeRows(stream, {.format = g.format, .x = y, .offsets = g.offsets, .rows = g.rows, .cols = g.cols});
}

}  // namespace yardmaster
