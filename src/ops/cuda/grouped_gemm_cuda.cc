#include "src/ops/cuda/grouped_gemm_cuda.h"

#include <algorithm>
#include <vector>

#include "kernels/common/scale_rows.h"
#include "kernels/grouped_gemm/grouped_gemm.h"
#include "kernels/grouped_gemm_portable/grouped_gemm_portable.h"
#include "src/ops/cuda/blas_lt.h"
#include "src/ops/cuda/kernel_types.h"
#include "src/ops/cuda/lt_grouped.h"
#include "src/ops/cuda/workspaces.h"

namespace yardmaster::cuda {

namespace {

// What is planned for in every build is what the kernels do.
static_assert(kMaxGroupedExperts == kGroupedGemmMaxExperts);
static_assert(HopperGradientSquares(384, 512) == GroupedGemmWgradSquares(384, 512) &&
              HopperGradientSquares(384, 384) == GroupedGemmWgradSquares(384, 384) &&
              HopperGradientSquares(192, 512) == GroupedGemmWgradSquares(192, 512));

struct Groups {
  int64_t R, L, N, K;
  const int64_t* offsets;
  Groups(const Tensor& rows, const Tensor& w_LNK, const Tensor& o)
      : R(rows.dim(0)), L(w_LNK.dim(0)), N(w_LNK.dim(1)), K(w_LNK.dim(2)), offsets(o.as<int64_t>()) {}
  GroupedGemmShape special() const {
    return {.rows = R, .experts = static_cast<int>(L), .n = static_cast<int>(N), .k = static_cast<int>(K)};
  }
  PortableGroups portable() const { return {.rows = R, .experts = L, .n = N, .k = K, .offsets = offsets}; }
};

std::vector<int64_t> OffsetsOnHost(const Stream& stream, const char* op, const Groups& g) {
  std::vector<int64_t> host(static_cast<size_t>(g.L) + 1);
  YM_CUDA_CHECK(stream, op, cudaMemcpyAsync(host.data(), g.offsets, host.size() * sizeof(int64_t), cudaMemcpyDeviceToHost,
                                            CudaStream(stream)));
  YM_CUDA_CHECK(stream, op, cudaStreamSynchronize(CudaStream(stream)));
  for (int64_t& o : host) o = std::min(o, g.R);
  return host;
}

template <class T>
T* At(T* base, int64_t elements, DType type) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return static_cast<Byte*>(base) + elements * DTypeBytes(type);
}

// rows_in (width k) times weight, `trans` as in forward, into rows_out (width n).
void LoopOverRows(const Stream& stream, const char* op, const Groups& g, const Tensor& in, const Tensor& w, const Tensor& out,
                  bool forward) {
  const std::vector<int64_t> off = OffsetsOnHost(stream, op, g);
  const DType type = w.dtype();
  const int64_t inner = in.dim(1), outer = out.dim(1);
  for (int64_t l = 0; l < g.L; ++l) {
    const int64_t begin = off[static_cast<size_t>(l)], m = off[static_cast<size_t>(l) + 1] - begin;
    if (m == 0) continue;
    const MatmulShape shape{.type = type, .out = type, .m = m, .n = outer, .k = inner, .lda = inner, .ldb = g.K, .ldc = outer,
                            .ldd = outer, .trans_b = forward};
    void* d = At(out.data(), begin * outer, type);
    BlasLtOf(stream).Run(CudaStream(stream), op, shape, At(in.data(), begin * inner, type), At(w.data(), l * g.N * g.K, type), d,
                         d, 1, 0);
  }
}

}  // namespace

void GroupedGemmForward(const Stream& stream, const Tensor& x_RK, const Tensor& w_LNK, const Tensor& offsets,
                        const Tensor& y_RN, GroupedGemmMode mode) {
  constexpr const char* kOp = "GroupedGemmForward";
  const Groups g(x_RK, w_LNK, offsets);
  const DType type = w_LNK.dtype();
  switch (ChooseGroupedGemm(mode, type, CudaDeviceOf(stream).properties().sm, g.L, g.N, g.K, true,
                            GroupedGemmLtUsable())) {
    case GroupedGemmPath::kHopper:
      YM_CUDA_CHECK(stream, kOp, GroupedGemmForwardSm90(g.special(), x_RK.data(), w_LNK.data(), g.offsets, y_RN.data(), {},
                                                        CudaStream(stream)));
      return;
    case GroupedGemmPath::kBlackwell: {
      const LtGrouped& lt = LtGroupedOf(stream);
      if (lt.Done(GroupedGemmForwardLt(lt.Resources(CudaStream(stream), g.L), g.special(), x_RK.data(), w_LNK.data(), g.offsets,
                                       y_RN.data(), CudaStream(stream)), kOp)) return;
      [[fallthrough]];
    }
    case GroupedGemmPath::kPortable:
      YM_CUDA_CHECK(stream, kOp, PortableGroupedForward(KernelTypeOf(type), g.portable(), x_RK.data(), w_LNK.data(), y_RN.data(),
                                                        CudaStream(stream)));
      return;
    case GroupedGemmPath::kLoop: LoopOverRows(stream, kOp, g, x_RK, w_LNK, y_RN, true); return;
  }
}

void GroupedGemmBackwardInput(const Stream& stream, const Tensor& dy_RN, const Tensor& w_LNK, const Tensor& offsets,
                              const Tensor& dx_RK, GroupedGemmMode mode) {
  constexpr const char* kOp = "GroupedGemmBackwardInput";
  const Groups g(dy_RN, w_LNK, offsets);
  const DType type = w_LNK.dtype();
  switch (ChooseGroupedGemm(mode, type, CudaDeviceOf(stream).properties().sm, g.L, g.N, g.K, true,
                            GroupedGemmLtUsable())) {
    case GroupedGemmPath::kHopper:
      YM_CUDA_CHECK(stream, kOp, GroupedGemmDgradSm90(g.special(), dy_RN.data(), w_LNK.data(), g.offsets, dx_RK.data(), {},
                                                      CudaStream(stream)));
      return;
    case GroupedGemmPath::kBlackwell: {
      const LtGrouped& lt = LtGroupedOf(stream);
      if (lt.Done(GroupedGemmDgradLt(lt.Resources(CudaStream(stream), g.L), g.special(), dy_RN.data(), w_LNK.data(), g.offsets,
                                     dx_RK.data(), CudaStream(stream)), kOp)) return;
      [[fallthrough]];
    }
    case GroupedGemmPath::kPortable:
      YM_CUDA_CHECK(stream, kOp, PortableGroupedDgrad(KernelTypeOf(type), g.portable(), dy_RN.data(), w_LNK.data(), dx_RK.data(),
                                                      CudaStream(stream)));
      return;
    case GroupedGemmPath::kLoop: LoopOverRows(stream, kOp, g, dy_RN, w_LNK, dx_RK, false); return;
  }
}

void GroupedGemmBackwardWeight(const Stream& stream, const Tensor& dy_RN, const Tensor& x_RK, const Tensor& offsets,
                               double beta, const Tensor& dw_LNK, GroupedGemmMode mode, int free_sms,
                               const Tensor& squares) {
  constexpr const char* kOp = "GroupedGemmBackwardWeight";
  const Groups g(x_RK, dw_LNK, offsets);
  const DType type = x_RK.dtype(), out = dw_LNK.dtype();
  switch (ChooseGroupedGemm(mode, type, CudaDeviceOf(stream).properties().sm, g.L, g.N, g.K, beta == 0 || beta == 1,
                            GroupedGemmLtUsable())) {
    case GroupedGemmPath::kHopper:
      YM_CUDA_CHECK(stream, kOp,
                    GroupedGemmWgradSm90(g.special(), dy_RN.data(), x_RK.data(), g.offsets, beta == 1,
                                         out == DType::kF32 ? GroupedGemmOutput::kFp32 : GroupedGemmOutput::kBf16, dw_LNK.data(),
                                         {.free_sms = free_sms,
                                          .squares = squares.defined() ? squares.as<double>() : nullptr},
                                         CudaStream(stream)));
      return;
    case GroupedGemmPath::kBlackwell: {
      const LtGrouped& lt = LtGroupedOf(stream);
      if (lt.Done(GroupedGemmWgradLt(lt.Resources(CudaStream(stream), g.L), g.special(), dy_RN.data(), x_RK.data(), g.offsets, beta == 1,
                                     out == DType::kF32 ? GroupedGemmOutput::kFp32 : GroupedGemmOutput::kBf16, dw_LNK.data(),
                                     CudaStream(stream)), kOp)) return;
      [[fallthrough]];
    }
    case GroupedGemmPath::kPortable:
      YM_CUDA_CHECK(stream, kOp, PortableGroupedWgrad(KernelTypeOf(type), KernelTypeOf(out), g.portable(), dy_RN.data(),
                                                      x_RK.data(), beta, dw_LNK.data(), CudaStream(stream)));
      return;
    case GroupedGemmPath::kLoop: break;
  }
  const std::vector<int64_t> off = OffsetsOnHost(stream, kOp, g);
  for (int64_t l = 0; l < g.L; ++l) {
    const int64_t begin = off[static_cast<size_t>(l)], m = off[static_cast<size_t>(l) + 1] - begin;
    void* d = At(dw_LNK.data(), l * g.N * g.K, out);
    if (m == 0) {
      YM_CUDA_CHECK(stream, kOp, ScaleRows(KernelTypeOf(out), d, g.K, d, g.K, g.N, g.K, beta, CudaStream(stream)));
      continue;
    }
    const MatmulShape shape{.type = type, .out = out, .m = g.N, .n = g.K, .k = m, .lda = g.N, .ldb = g.K, .ldc = g.K,
                            .ldd = g.K, .trans_a = true};
    BlasLtOf(stream).Run(CudaStream(stream), kOp, shape, At(dy_RN.data(), begin * g.N, type), At(x_RK.data(), begin * g.K, type),
                         d, d, 1, beta);
  }
}

int ComputeCapability(const Stream& stream) { return CudaDeviceOf(stream).properties().sm; }

}  // namespace yardmaster::cuda
