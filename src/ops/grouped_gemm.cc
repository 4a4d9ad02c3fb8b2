#include "src/ops/grouped_gemm.h"

#include "src/ops/cpu/grouped_gemm_cpu.h"
#include "src/ops/cuda/grouped_gemm_path.h"
#include "src/ops/cuda/workspaces.h"
#include "src/ops/op_args.h"
#include "src/ops/step_control.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/grouped_gemm_cuda.h"
#endif

namespace yardmaster {
namespace {

// `rows_N` are the rows of width N, `rows_K` those of width K. The weight has their type; a gradient of it may be F32.
void CheckGroups(const OpArgs& check, const Tensor& rows_N, const Tensor& rows_K, const Tensor& w_LNK,
                 const Tensor& offsets, bool gradient = false) {
  check.Rank("w", w_LNK, 3);
  check.Rank("x", rows_K, 2);
  const DType type = check.WorkType("x", rows_K);
  const int64_t R = rows_K.dim(0), L = w_LNK.dim(0), N = w_LNK.dim(1), K = w_LNK.dim(2);
  check.Contiguous("w", w_LNK, gradient && w_LNK.dtype() == DType::kF32 ? OpArgs::AccumType(type) : type, {L, N, K});
  check.Contiguous("x", rows_K, type, {R, K});
  check.Contiguous("y", rows_N, type, {R, N});
  check.Contiguous("offsets", offsets, DType::kI64, {L + 1});
  // As if every row were in use: how many are is known to the device alone.
  check.Cost(2.0 * static_cast<double>(R) * static_cast<double>(N) * static_cast<double>(K),
             static_cast<double>(rows_N.bytes() + rows_K.bytes() + w_LNK.bytes()), {R, N, K, L});
}

}  // namespace

void GroupedGemmForward(const Stream& stream, const Tensor& x_RK, const Tensor& w_LNK, const Tensor& offsets,
                        const Tensor& y_RN, [[maybe_unused]] GroupedGemmMode mode) {
  const OpArgs check(stream, "GroupedGemmForward");
  CheckGroups(check, y_RN, x_RK, w_LNK, offsets);
  if (stream.dry() || y_RN.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::GroupedGemmForward(stream, x_RK, w_LNK, offsets, y_RN);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::GroupedGemmForward(stream, x_RK, w_LNK, offsets, y_RN, mode);
#endif
  check.NoImplementation();
}

void GroupedGemmBackwardInput(const Stream& stream, const Tensor& dy_RN, const Tensor& w_LNK, const Tensor& offsets,
                              const Tensor& dx_RK, [[maybe_unused]] GroupedGemmMode mode) {
  const OpArgs check(stream, "GroupedGemmBackwardInput");
  CheckGroups(check, dy_RN, dx_RK, w_LNK, offsets);
  if (stream.dry() || dx_RK.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::GroupedGemmBackwardInput(stream, dy_RN, w_LNK, offsets, dx_RK);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::GroupedGemmBackwardInput(stream, dy_RN, w_LNK, offsets, dx_RK, mode);
#endif
  check.NoImplementation();
}

void GroupedGemmBackwardWeight(const Stream& stream, const Tensor& dy_RN, const Tensor& x_RK, const Tensor& offsets,
                               double beta, const Tensor& dw_LNK, [[maybe_unused]] GroupedGemmMode mode,
                               [[maybe_unused]] int free_sms, const Tensor& squares) {
  const OpArgs check(stream, "GroupedGemmBackwardWeight");
  CheckGroups(check, dy_RN, x_RK, dw_LNK, offsets, /*gradient=*/true);
  if (squares.defined()) {
    YM_CHECK_EQ(beta, 0);
    check.Contiguous("squares", squares, DType::kF64,
                     {NumNormChunks(dw_LNK.shape()) * GroupedGemmNormAddends(stream, x_RK.dtype(), dw_LNK, mode)});
  }
  if (stream.dry() || dw_LNK.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) {
    cpu::GroupedGemmBackwardWeight(stream, dy_RN, x_RK, offsets, beta, dw_LNK);
    if (squares.defined()) SumSquares(stream, dw_LNK, squares);
    return;
  }
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) {
    return cuda::GroupedGemmBackwardWeight(stream, dy_RN, x_RK, offsets, beta, dw_LNK, mode, free_sms, squares);
  }
#endif
  check.NoImplementation();
}

// A plan for a GPU that is not here is made for sm_90: it asks for the most.
int64_t GroupedGemmNormAddends(const Stream& stream, DType x, const Tensor& dw_LNK, GroupedGemmMode mode) {
  if (stream.target() == DeviceKind::kCpu) return 1;  // SumSquares' own, right after the product
  int sm = 90;
#if YM_HAVE_CUDA
  if (!stream.dry()) sm = cuda::ComputeCapability(stream);
#endif
  const int64_t N = dw_LNK.dim(1), K = dw_LNK.dim(2);
  const cuda::GroupedGemmPath path =
      cuda::ChooseGroupedGemm(mode, x, sm, dw_LNK.dim(0), N, K, /*beta_one_or_zero=*/true);
  const bool sums = path == cuda::GroupedGemmPath::kHopper && dw_LNK.dtype() == DType::kF32;
  return sums ? cuda::HopperGradientSquares(N, K) : 0;
}

}  // namespace yardmaster
