#include "src/ops/cuda/scaled_gemm_cuda.h"

#include "kernels/grouped_gemm/grouped_gemm_mxfp8_sm100_cublaslt.h"
#include "kernels/grouped_gemm_fp8/grouped_gemm_fp8.h"
#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/lt_grouped.h"
#include "src/ops/cuda/quantize_cuda.h"
#include "src/ops/cuda/workspaces.h"

namespace yardmaster::cuda {
namespace {

// What is planned for in every build is what the kernels do.
static_assert(Fp8GradientSquares(384, 512) == GroupedGemmFp8WgradSquares(384, 512) &&
              Fp8GradientSquares(384, 192) == GroupedGemmFp8WgradSquares(384, 192) &&
              Fp8GradientSquares(192, 512) == GroupedGemmFp8WgradSquares(192, 512));

static_assert(kFp8MaxGroups == kGroupedGemmFp8MaxGroups);

const int64_t* Pointer(const Tensor& offsets) {
  return offsets.defined() ? offsets.as<int64_t>() : nullptr;
}

void CheckDevice(const Stream& stream) {
  const int sm = CudaDeviceOf(stream).properties().sm;
  if (sm != 90) {
    throw ConfigError(
        StrCat("precision.compute = fp8_block multiplies on compute capability 9.0; this GPU has ",
               sm / 10, ".", sm % 10),
        "precision.compute", "mxfp8 and bf16 run on this GPU");
  }
}

void CheckBeta(double beta) {
  YM_CHECK(beta == 0 || beta == 1, "beta is ", beta, ": cuda adds or overwrites");
}

bool Aligned(const Tensor& rows) {
  return reinterpret_cast<uintptr_t>(rows.data()) % 16 == 0 && rows.ld() * DTypeBytes(rows.dtype()) % 16 == 0;
}

Mxfp8Matrix MatrixOf(const Quantized& q, const Tensor& tiles) {
  return {q.codes.as<uint8_t>(), tiles.as<uint8_t>()};
}

}  // namespace

bool TakesMxfp8(GroupedGemmMode mode, int sm, int64_t groups, int64_t n, int64_t k, bool aligned,
                bool lt_grouped) {
  return lt_grouped && mode == GroupedGemmMode::kAuto && sm >= 100 && sm < 110 && groups >= 1 &&
         groups <= kGroupedGemmMaxExperts && n > 0 && k > 0 && n % 32 == 0 && k % 32 == 0 && aligned;
}

bool Mxfp8Gemm(const Stream& stream, const ScaledGemmArgs& g, const Tensor& x_tiles, const Tensor& w_tiles) {
  const int64_t R = g.y.dim(0), L = g.w.codes.dim(0), N = g.y.dim(1), K = g.x.codes.dim(1);
  const Tensor& c = g.c.defined() ? g.c : g.y;
  const bool aligned = Aligned(g.x.codes) && Aligned(g.w.codes) && Aligned(g.y) && Aligned(c);
  if (!TakesMxfp8(g.grouped_gemm, CudaDeviceOf(stream).properties().sm, L, N, K, aligned,
                  GroupedGemmLtUsable()))
    return false;
  cuda::ScalesToTiles(stream, g.x.scales, R, g.offsets, x_tiles);
  cuda::WeightScalesToTiles(stream, g.w.scales, w_tiles);
  const Mxfp8Rows problem{.n = N,
                          .k = K,
                          .x = MatrixOf(g.x, x_tiles),
                          .w = MatrixOf(g.w, w_tiles),
                          .y = static_cast<char*>(g.y.data()),
                          .c = static_cast<const char*>(c.data()),
                          .y_ld = g.y.ld(),
                          .c_ld = c.ld()};
  const LtGrouped& lt = LtGroupedOf(stream);
  return lt.Done(GroupedGemmMxfp8RowsLt(lt.Resources(CudaStream(stream), L), problem, R, Pointer(g.offsets),
                                        static_cast<int>(L), static_cast<float>(g.beta), CudaStream(stream)),
                 "ScaledGemm");
}

bool Mxfp8GemmWeight(const Stream& stream, const ScaledGemmWeightArgs& g, const Tensor& dy_tiles,
                     const Tensor& x_tiles) {
  const int64_t L = g.dw.dim(0), N = g.dw.dim(1), K = g.dw.dim(2);
  const bool aligned = Aligned(g.dy.codes) && Aligned(g.x.codes) && Aligned(g.dw);
  if (!TakesMxfp8(g.grouped_gemm, CudaDeviceOf(stream).properties().sm, L, N, K, aligned,
                  GroupedGemmLtUsable()))
    return false;
  cuda::ColumnScalesToTiles(stream, g.dy.scales, N, g.rows, g.offsets, dy_tiles);
  cuda::ColumnScalesToTiles(stream, g.x.scales, K, g.rows, g.offsets, x_tiles);
  const Mxfp8Weight problem{.n = N,
                            .k = K,
                            .padded = g.x.codes.dim(1),
                            .dy = MatrixOf(g.dy, dy_tiles),
                            .x = MatrixOf(g.x, x_tiles),
                            .dw = g.dw.as<float>()};
  const LtGrouped& lt = LtGroupedOf(stream);
  return lt.Done(
      GroupedGemmMxfp8WeightLt(lt.Resources(CudaStream(stream), L), problem, g.rows, Pointer(g.offsets),
                               static_cast<int>(L), static_cast<float>(g.beta), CudaStream(stream)),
      "ScaledGemmWeight");
}

void ScaledGemm(const Stream& stream, const ScaledGemmArgs& g) {
  CheckDevice(stream);
  CheckBeta(g.beta);
  const Tensor& c = g.c.defined() ? g.c : g.y;
  Fp8RowsArgs a;
  a.rows = g.y.dim(0);
  a.groups = static_cast<int>(g.w.codes.dim(0));
  a.n = static_cast<int>(g.y.dim(1));
  a.k = static_cast<int>(g.x.codes.dim(1));
  a.x = g.x.codes.as<uint8_t>();
  a.x_scales = g.x.scales.as<float>();
  a.w = g.w.codes.as<uint8_t>();
  a.w_scales = g.w.scales.as<float>();
  a.offsets = Pointer(g.offsets);
  a.y = g.y.data();
  a.y_ld = g.y.ld();
  YM_CHECK(reinterpret_cast<uintptr_t>(a.y) % 16 == 0 && a.y_ld % 8 == 0, "rows of y ", g.y.shape(),
           ", ", a.y_ld, " apart, are not 16-byte aligned");
  if (g.beta != 0) {
    a.c = c.data();
    a.c_ld = c.ld();
    YM_CHECK(reinterpret_cast<uintptr_t>(a.c) % 4 == 0 && a.c_ld % 2 == 0, "rows of c ", c.shape(),
             ", ", a.c_ld, " apart, are not 4-byte aligned");
  }
  YM_CUDA_CHECK(stream, "ScaledGemm", GroupedGemmFp8RowsSm90(a, {}, CudaStream(stream)));
}

void ScaledGemmWeight(const Stream& stream, const ScaledGemmWeightArgs& g) {
  CheckDevice(stream);
  CheckBeta(g.beta);
  Fp8WgradArgs a;
  a.rows = g.rows;
  a.padded = g.x.codes.dim(1);
  a.groups = static_cast<int>(g.dw.dim(0));
  a.n = static_cast<int>(g.dw.dim(1));
  a.k = static_cast<int>(g.dw.dim(2));
  a.dy = g.dy.codes.as<uint8_t>();
  a.dy_scales = g.dy.scales.as<float>();
  a.x = g.x.codes.as<uint8_t>();
  a.x_scales = g.x.scales.as<float>();
  a.offsets = Pointer(g.offsets);
  a.accumulate = g.beta == 1;
  a.dw = g.dw.as<float>();
  if (g.squares.defined()) a.squares = g.squares.as<double>();
  YM_CUDA_CHECK(stream, "ScaledGemmWeight", GroupedGemmFp8WgradSm90(a, {.free_sms = g.free_sms}, CudaStream(stream)));
}

}  // namespace yardmaster::cuda
