#include "src/ops/scaled_gemm.h"

#include "src/ops/cpu/scaled_gemm_cpu.h"
#include "src/ops/cuda/workspaces.h"
#include "src/ops/gemm.h"
#include "src/ops/quantize_checks.h"
#include "src/ops/step_control.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/scaled_gemm_cuda.h"
#endif

namespace yardmaster {
namespace {

// What the FP8 kernels of cuda take in one launch.
constexpr int64_t kMaxGroups = 512;
#if YM_HAVE_CUDA
static_assert(kMaxGroups == cuda::kFp8MaxGroups);
#endif

// Whether operands are dequantised first: mxfp8's, unless AsTheyAre multiplied them. cuda takes fp8_block's
// as they are, unless other kernels are asked for (or there are more groups than ours take).
bool ThroughHigh(const Stream& stream, const QuantFormat& format, GroupedGemmMode mode, int64_t groups) {
  if (format.kind == QuantKind::kMxfp8) return true;
  return stream.target() == DeviceKind::kCuda &&
         (mode == GroupedGemmMode::kPortable || mode == GroupedGemmMode::kLoop || groups > kMaxGroups);
}

// mxfp8 by units that multiply it. False: this GPU or its library does not, and the product is still to be
// computed. The memory is planned on the dry device for every GPU.
bool TriesUnits(const Stream& stream, const QuantFormat& format, GroupedGemmMode mode) {
  return format.kind == QuantKind::kMxfp8 && stream.target() == DeviceKind::kCuda &&
         mode == GroupedGemmMode::kAuto;
}

bool AsTheyAre(const Stream& stream, const ScaledGemmArgs& g, Arena& work) {
  if (!TriesUnits(stream, g.format, g.grouped_gemm)) return false;
  const int64_t L = g.w.codes.dim(0), N = g.w.codes.dim(1), runs = g.x.scales.dim(0);
  ArenaScope scope(work);
  [[maybe_unused]] const Tensor x =
      work.Allocate("scaled_gemm/x_tiles", DType::kU8, TileScaleShape(g.y.dim(0), L, runs));
  [[maybe_unused]] const Tensor w =
      work.Allocate("scaled_gemm/w_tiles", DType::kU8, TileWeightScaleShape(L, N, runs));
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda && g.y.elements() != 0) return cuda::Mxfp8Gemm(stream, g, x, w);
#endif
  return false;
}

bool AsTheyAre(const Stream& stream, const ScaledGemmWeightArgs& g, Arena& work) {
  if (!TriesUnits(stream, g.format, g.grouped_gemm)) return false;
  const int64_t L = g.dw.dim(0), N = g.dw.dim(1), K = g.dw.dim(2);
  ArenaScope scope(work);
  [[maybe_unused]] const Tensor dy =
      work.Allocate("scaled_gemm/dy_tiles", DType::kU8, TileColumnScaleShape(g.rows, L, N));
  [[maybe_unused]] const Tensor x =
      work.Allocate("scaled_gemm/x_tiles", DType::kU8, TileColumnScaleShape(g.rows, L, K));
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda && g.rows != 0 && g.dw.elements() != 0)
    return cuda::Mxfp8GemmWeight(stream, g, dy, x);
#endif
  return false;
}

void ForwardThroughHigh(const Stream& stream, const ScaledGemmArgs& g, Arena& work) {
  const int64_t R = g.y.dim(0), K = g.x.codes.dim(1);
  const DType type = RecipeWorkType(stream);
  const Tensor x = work.Allocate("scaled_gemm/x", type, {R, K});
  const Tensor w = work.Allocate("scaled_gemm/w", type, g.w.codes.shape());
  Dequantize(stream, {.format = g.format, .rows = g.x, .offsets = g.offsets, .out = x});
  DequantizeWeights(stream, {.format = g.format, .w = {}, .rows = g.w}, w);
  if (g.offsets.defined()) {
    GroupedGemmForward(stream, x, w, g.offsets, g.y, g.grouped_gemm);
  } else {
    Gemm(stream, {.a = x, .b = w.At(0), .d = g.y, .c = g.c, .trans_b = true, .beta = g.beta});
  }
}

void WeightThroughHigh(const Stream& stream, const ScaledGemmWeightArgs& g, Arena& work) {
  const int64_t N = g.dw.dim(1), K = g.dw.dim(2);
  const DType type = RecipeWorkType(stream);
  const Tensor dy = work.Allocate("scaled_gemm/dy", type, {g.rows, N});
  const Tensor x = work.Allocate("scaled_gemm/x", type, {g.rows, K});
  Dequantize(stream, {.format = g.format, .cols = g.dy, .offsets = g.offsets, .out = dy});
  Dequantize(stream, {.format = g.format, .cols = g.x, .offsets = g.offsets, .out = x});
  if (g.offsets.defined()) {
    GroupedGemmBackwardWeight(stream, dy, x, g.offsets, g.beta, g.dw, g.grouped_gemm, g.free_sms, g.squares);
  } else {
    Gemm(stream, {.a = dy, .b = x, .d = g.dw.At(0), .trans_a = true, .beta = g.beta});
  }
}

// Codes as F32, without scales.
Tensor Decoded(const Stream& stream, const char* what, const Tensor& codes, Arena& work) {
  const Tensor values = work.Allocate(what, DType::kF32, codes.shape());
  if (!stream.dry()) cpu::DecodeE4m3(stream, codes, values);
  return values;
}

}  // namespace

void ScaledGemm(const Stream& stream, const ScaledGemmArgs& g, Arena& work) {
  const OpArgs check(stream, g.offsets.defined() ? "GroupedGemmScaled" : "ScaledGemm");
  check.Rank("y", g.y, 2);
  check.Rank("x", g.x.codes, 2);
  check.Rank("w", g.w.codes, 3);
  const int64_t R = g.y.dim(0), N = g.y.dim(1), K = g.x.codes.dim(1), L = g.w.codes.dim(0);
  CheckOperand(check, "x", g.format, g.x, {R, K});
  CheckOperand(check, "w", g.format, g.w, {L, N, K});
  check.Strided("y", g.y, RecipeWorkType(stream), {R, N});
  if (g.offsets.defined()) {
    check.Contiguous("offsets", g.offsets, DType::kI64, {L + 1});
    check.Contiguous("y", g.y, RecipeWorkType(stream), {R, N});
    YM_CHECK(g.beta == 0 && !g.c.defined(), "an addend with groups");
  } else {
    YM_CHECK_EQ(L, 1);
    if (g.c.defined()) check.Strided("c", g.c, RecipeWorkType(stream), {R, N});
  }
  check.Cost(2.0 * static_cast<double>(R) * static_cast<double>(N) * static_cast<double>(K),
             static_cast<double>(g.x.codes.bytes() + g.w.codes.bytes()) +
                 static_cast<double>(g.y.bytes()) * (g.beta != 0 ? 2 : 1),
             {R, N, K});
  if (AsTheyAre(stream, g, work)) return;
  ArenaScope scope(work);
  if (ThroughHigh(stream, g.format, g.grouped_gemm, L)) return ForwardThroughHigh(stream, g, work);
  if (stream.target() == DeviceKind::kCuda) {
    if (stream.dry() || g.y.elements() == 0) return;
#if YM_HAVE_CUDA
    return cuda::ScaledGemm(stream, g);
#endif
    check.NoImplementation();
  }
  const Tensor x = Decoded(stream, "scaled_gemm/x", g.x.codes, work);
  const Tensor w = Decoded(stream, "scaled_gemm/w", g.w.codes, work);
  if (stream.dry() || g.y.elements() == 0) return;
  cpu::Fp8BlockGemm(stream, g, x, w);
}

void ScaledGemmWeight(const Stream& stream, const ScaledGemmWeightArgs& g, Arena& work) {
  const OpArgs check(stream, g.offsets.defined() ? "GroupedGemmScaledWeight" : "ScaledGemmWeight");
  check.Rank("dw", g.dw, 3);
  const int64_t L = g.dw.dim(0), N = g.dw.dim(1), K = g.dw.dim(2);
  CheckOperand(check, "dy", g.format, g.dy, {N, PaddedRows(g.rows, L)});
  CheckOperand(check, "x", g.format, g.x, {K, PaddedRows(g.rows, L)});
  check.Contiguous("dw", g.dw, DType::kF32, {L, N, K});
  if (g.offsets.defined()) {
    check.Contiguous("offsets", g.offsets, DType::kI64, {L + 1});
  } else {
    YM_CHECK_EQ(L, 1);
  }
  check.Cost(2.0 * static_cast<double>(g.rows) * static_cast<double>(N) * static_cast<double>(K),
             static_cast<double>(g.dy.codes.bytes() + g.x.codes.bytes()) +
                 static_cast<double>(g.dw.bytes()) * (g.beta != 0 ? 2 : 1),
             {g.rows, N, K});
  if (g.squares.defined()) {
    YM_CHECK_EQ(g.beta, 0);
    check.Contiguous("squares", g.squares, DType::kF64,
                     {NumNormChunks(g.dw.shape()) *
                      ScaledGemmNormAddends(stream, g.format, g.dw, g.offsets.defined(), g.grouped_gemm)});
  }
  if (AsTheyAre(stream, g, work)) return;  // never with squares: these GPUs sum none
  ArenaScope scope(work);
  if (ThroughHigh(stream, g.format, g.grouped_gemm, L)) return WeightThroughHigh(stream, g, work);
  if (stream.target() == DeviceKind::kCuda) {
    if (stream.dry() || g.dw.elements() == 0) return;
#if YM_HAVE_CUDA
    return cuda::ScaledGemmWeight(stream, g);
#endif
    check.NoImplementation();
  }
  const Tensor dy = Decoded(stream, "scaled_gemm/dy", g.dy.codes, work);
  const Tensor x = Decoded(stream, "scaled_gemm/x", g.x.codes, work);
  if (stream.dry() || g.dw.elements() == 0) return;
  cpu::Fp8BlockGemmWeight(stream, g, dy, x);
  if (g.squares.defined()) SumSquares(stream, g.dw, g.squares);
}

int64_t ScaledGemmNormAddends(const Stream& stream, const QuantFormat& format, const Tensor& dw, bool groups,
                              GroupedGemmMode grouped_gemm) {
  if (ThroughHigh(stream, format, grouped_gemm, dw.dim(0)))
    return groups ? GroupedGemmNormAddends(stream, RecipeWorkType(stream), dw, grouped_gemm) : 0;
  if (stream.target() == DeviceKind::kCpu) return 1;
  return cuda::Fp8GradientSquares(dw.dim(1), dw.dim(2));
}

}  // namespace yardmaster
