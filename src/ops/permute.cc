#include "src/ops/permute.h"

#include "src/ops/cpu/permute_cpu.h"
#include "src/ops/cuda/workspaces.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/permute_cuda.h"
#endif

namespace yardmaster {

void PermutePlan(const Stream& stream, const PermutePlanArgs& g, const Tensor& overflow, Arena& work) {
  const OpArgs check(stream, "PermutePlan");
  check.Rank("idx", g.idx, 2);
  check.Rank("offsets", g.offsets, 1);
  check.Rank("source", g.source, 1);
  YM_CHECK_GE(g.offsets.dim(0), 1, "PermutePlan: offsets has L + 1 entries");
  check.Contiguous("idx", g.idx, DType::kI32, g.idx.shape());
  check.Contiguous("offsets", g.offsets, DType::kI64, g.offsets.shape());
  check.Contiguous("slot", g.slot, DType::kI64, g.idx.shape());
  check.Contiguous("source", g.source, DType::kI64, g.source.shape());
  check.Contiguous("overflow", overflow, DType::kI32, {1});
  ArenaScope scope(work);
  const int64_t L = g.offsets.dim(0) - 1;
  Tensor next_row, prefix, starts;
  if (stream.target() == DeviceKind::kCuda) {
    prefix = work.Allocate("permute prefix sums", DType::kI64, {L, cuda::SortChunks(g.idx.elements())});
    starts = work.Allocate("permute starts", DType::kI64, {L + 1});
  } else {
    next_row = work.Allocate("permute next row", DType::kI64, {L + 1});
  }
  if (stream.dry()) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::PermutePlan(g, overflow, next_row);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::PermutePlan(stream, g, overflow, prefix, starts);
#endif
  check.NoImplementation();
}

void Permute(const Stream& stream, const PermuteArgs& g) {
  const OpArgs check(stream, "Permute");
  check.Rank("x_TD", g.x_TD, 2);
  check.Rank("x_RD", g.x_RD, 2);
  check.Rank("offsets", g.offsets, 1);
  const int64_t n_T = g.x_TD.dim(0), D = g.x_TD.dim(1), R = g.x_RD.dim(0);
  check.Contiguous("x_TD", g.x_TD, g.x_TD.dtype(), {n_T, D});
  check.Contiguous("x_RD", g.x_RD, g.x_TD.dtype(), {R, D});
  check.Contiguous("source", g.source, DType::kI64, {R});
  check.Contiguous("offsets", g.offsets, DType::kI64, g.offsets.shape());
  YM_CHECK_GE(g.top_k, 1, "Permute");
  if (g.slot.defined()) check.Contiguous("slot", g.slot, DType::kI64, {n_T, g.top_k});
  YM_CHECK(g.w_TK.defined() == g.w_R.defined(), "Permute: w_TK goes with w_R");
  if (g.w_TK.defined()) {
    const DType type = check.ComputeType("w_TK", g.w_TK);
    check.Contiguous("w_TK", g.w_TK, type, {n_T, g.top_k});
    check.Contiguous("w_R", g.w_R, type, {R});
  }
  check.Traffic({&g.x_TD, &g.x_RD, &g.w_TK, &g.w_R, &g.source}, {n_T, R, D});
  if (stream.dry() || R == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::Permute(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::Permute(stream, g);
#endif
  check.NoImplementation();
}

void Unpermute(const Stream& stream, const UnpermuteArgs& g) {
  const OpArgs check(stream, "Unpermute");
  check.Rank("y_TD", g.y_TD, 2);
  check.Rank("y_RD", g.y_RD, 2);
  check.Rank("slot", g.slot, 2);
  const DType type = check.WorkType("y_TD", g.y_TD);
  const int64_t n_T = g.y_TD.dim(0), D = g.y_TD.dim(1), R = g.y_RD.dim(0), K = g.slot.dim(1);
  check.Contiguous("y_TD", g.y_TD, type, {n_T, D});
  check.Contiguous("y_RD", g.y_RD, type, {R, D});
  check.Contiguous("slot", g.slot, DType::kI64, {n_T, K});
  if (g.residual.defined()) check.Contiguous("residual", g.residual, type, {n_T, D});
  if (g.addend.defined()) check.Contiguous("addend", g.addend, type, {n_T, D});
  YM_CHECK(g.dw_R.defined() == g.dw_TK.defined(), "Unpermute: dw_R goes with dw_TK");
  if (g.dw_R.defined()) {
    const DType dw_type = OpArgs::AccumType(type);
    check.Contiguous("dw_R", g.dw_R, dw_type, {R});
    check.Contiguous("dw_TK", g.dw_TK, dw_type, {n_T, K});
  }
  check.Traffic({&g.y_RD, &g.slot, &g.residual, &g.addend, &g.y_TD, &g.dw_R, &g.dw_TK}, {R, n_T, D});
  if (stream.dry() || n_T == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::Unpermute(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::Unpermute(stream, g);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
