#include "kernels/common/pack.cuh"
#include "kernels/split/split_bf16.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

// f(row, column) for every pack of kWidth elements. Dividing in 32 bits where that suffices: a
// division in 64 costs more than the pack's bytes.
template <int kWidth, class F>
__device__ __forceinline__ void ForPacks(int64_t rows, int64_t cols, F&& f) {
  const int64_t packs = cols / kWidth, stride = int64_t{gridDim.x} * kThreads;
  const bool narrow = rows * packs + stride < (int64_t{1} << 32);
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows * packs; i += stride) {
    const int64_t r = narrow ? static_cast<uint32_t>(i) / static_cast<uint32_t>(packs) : i / packs;
    f(r, (i - r * packs) * kWidth);
  }
}

// Numbers are rounded in pairs: Hopper converts two as fast as a quarter of one.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    SplitKernel(const float* x, int64_t ldx, int64_t rows, int64_t cols, SplitOutputs out) {
  constexpr int kPairs = (kWidth + 1) / 2;
  ForPacks<kWidth>(rows, cols, [&](int64_t r, int64_t c) {
    const Pack<float, kWidth> number = LoadPack<kWidth>(x + r * ldx + c);
    uint32_t term[3][kPairs];
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      float2 rest = {number.x[2 * p], kWidth > 1 ? number.x[kWidth > 1 ? 2 * p + 1 : 0] : 0.0f};
#pragma unroll
      for (int t = 0; t < 3; ++t) {
        const __nv_bfloat162 rounded = __float22bfloat162_rn(rest);
        term[t][p] = reinterpret_cast<const uint32_t&>(rounded);
        rest.x -= __low2float(rounded);  // exact
        rest.y -= __high2float(rounded);
      }
    }
#pragma unroll
    for (int o = 0; o < kSplitMost; ++o) {
      if (o >= out.count) continue;
      const int t = out.term[o];
      Pack<uint32_t, kPairs> chosen;
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        const uint32_t low = term[1][p], lowest = term[2][p];
        const uint32_t rest = t == 1 ? low : lowest;
        chosen.x[p] = t == 0 ? term[0][p] : rest;
      }
      auto* y = static_cast<uint16_t*>(out.y[o]) + r * out.ld[o] + c;
      if constexpr (kWidth == 1) {
        *y = static_cast<uint16_t>(chosen.x[0]);
      } else {
        StorePack<kPairs>(reinterpret_cast<uint32_t*>(y), chosen);
      }
    }
  });
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    AddKernel(SumTerms terms, float beta, float* y, int64_t ldy, int64_t rows, int64_t cols) {
  ForPacks<kWidth>(rows, cols, [&](int64_t r, int64_t c) {
    Pack<float, kWidth> sum = {};
    if (beta != 0) {
      sum = LoadPack<kWidth>(y + r * ldy + c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum.x[j] *= beta;
    }
#pragma unroll
    for (int o = 0; o < kSplitMost; ++o) {
      if (o >= terms.count) continue;
      const Pack<float, kWidth> term = LoadPack<kWidth>(terms.x[o] + r * terms.ld[o] + c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum.x[j] += term.x[j];
    }
    StorePack<kWidth>(y + r * ldy + c, sum);
  });
}

unsigned Grid(int64_t packs) { return GridFor((packs + kThreads - 1) / kThreads); }

// Whether packs of four may be taken of matrices with these addresses and distances of rows.
template <class P, size_t kCount>
bool FourFit(int count, const P (&matrix)[kCount], const int64_t (&ld)[kCount]) {
  for (int o = 0; o < count; ++o) {
    if (!PacksFit(4, {matrix[o]}, {ld[o]})) return false;
  }
  return true;
}

}  // namespace

cudaError_t SplitToBf16(const float* x, int64_t ldx, int64_t rows, int64_t cols, const SplitOutputs& outputs,
                        cudaStream_t stream) {
  if (rows * cols == 0) return cudaSuccess;
  const bool fits = PacksFit(4, {x}, {ldx, cols}) && FourFit(outputs.count, outputs.y, outputs.ld);
  return DispatchWidth<float>(fits, [&]<int kWidth>() {
    SplitKernel<kWidth>
        <<<Grid(rows * cols / kWidth), kThreads, 0, stream>>>(x, ldx, rows, cols, outputs);
    return cudaGetLastError();
  });
}

cudaError_t AddMatrices(const SumTerms& terms, double beta, float* y, int64_t ldy, int64_t rows, int64_t cols,
                        cudaStream_t stream) {
  if (rows * cols == 0) return cudaSuccess;
  const bool fits = PacksFit(4, {y}, {ldy, cols}) && FourFit(terms.count, terms.x, terms.ld);
  return DispatchWidth<float>(fits, [&]<int kWidth>() {
    AddKernel<kWidth><<<Grid(rows * cols / kWidth), kThreads, 0, stream>>>(
        terms, static_cast<float>(beta), y, ldy, rows, cols);
    return cudaGetLastError();
  });
}

}  // namespace yardmaster
