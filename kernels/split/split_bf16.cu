#include "kernels/common/pack.cuh"
#include "kernels/split/split_bf16.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    SplitKernel(const float* x, int64_t ldx, int64_t rows, int64_t cols, SplitOutputs out) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows * cols;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t r = i / cols, c = i % cols;
    float rest = x[r * ldx + c];
    __nv_bfloat16 term[3];
#pragma unroll
    for (int t = 0; t < 3; ++t) {
      term[t] = __float2bfloat16_rn(rest);
      rest -= __bfloat162float(term[t]);  // exact
    }
#pragma unroll
    for (int o = 0; o < kSplitMost; ++o) {
      if (o >= out.count) continue;
      const int t = out.term[o];
      static_cast<__nv_bfloat16*>(out.y[o])[r * out.ld[o] + c] = t == 0   ? term[0]
                                                                 : t == 1 ? term[1]
                                                                          : term[2];
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    AddKernel(SumTerms terms, float beta, float* y, int64_t ldy, int64_t rows, int64_t cols) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows * cols;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t r = i / cols, c = i % cols;
    float sum = beta == 0 ? 0.0f : beta * y[r * ldy + c];
#pragma unroll
    for (int o = 0; o < kSplitMost; ++o) {
      if (o < terms.count) sum += terms.x[o][r * terms.ld[o] + c];
    }
    y[r * ldy + c] = sum;
  }
}

unsigned Grid(int64_t items) { return GridFor((items + kThreads - 1) / kThreads); }

}  // namespace

cudaError_t SplitToBf16(const float* x, int64_t ldx, int64_t rows, int64_t cols, const SplitOutputs& outputs,
                        cudaStream_t stream) {
  if (rows * cols == 0) return cudaSuccess;
  SplitKernel<<<Grid(rows * cols), kThreads, 0, stream>>>(x, ldx, rows, cols, outputs);
  return cudaGetLastError();
}

cudaError_t AddMatrices(const SumTerms& terms, double beta, float* y, int64_t ldy, int64_t rows, int64_t cols,
                        cudaStream_t stream) {
  if (rows * cols == 0) return cudaSuccess;
  AddKernel<<<Grid(rows * cols), kThreads, 0, stream>>>(terms, static_cast<float>(beta), y, ldy, rows, cols);
  return cudaGetLastError();
}

}  // namespace yardmaster
