#include <algorithm>

#include "kernels/common/float_types.cuh"
#include "kernels/common/scale_rows.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 132 * 16;

template <class In, class Out>
__global__ void __launch_bounds__(kThreads) ScaleRowsKernel(const In* c, int64_t ldc, Out* d, int64_t ldd, int64_t m, int64_t n,
                                                            Accum<In> beta) {
  const int64_t total = m * n;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < total; i += int64_t{gridDim.x} * kThreads) {
    const int64_t row = i / n, col = i % n;
    const Accum<In> x = beta == 0 ? Accum<In>{0} : beta * ToAccum(c[row * ldc + col]);
    d[row * ldd + col] = FromAccum<Out>(x);
  }
}

int Blocks(int64_t elements) {
  return static_cast<int>(std::clamp<int64_t>((elements + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

}  // namespace

cudaError_t ScaleRows(KernelType type, const void* c, int64_t ldc, void* d, int64_t ldd, int64_t m, int64_t n, double beta,
                      cudaStream_t stream) {
  if (m == 0 || n == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    ScaleRowsKernel<T, T><<<Blocks(m * n), kThreads, 0, stream>>>(static_cast<const T*>(c), ldc, static_cast<T*>(d), ldd, m, n,
                                                                  static_cast<Accum<T>>(beta));
    return cudaGetLastError();
  });
}

cudaError_t RoundRowsToBf16(const float* c, int64_t ldc, void* d, int64_t ldd, int64_t m, int64_t n, cudaStream_t stream) {
  if (m == 0 || n == 0) return cudaSuccess;
  ScaleRowsKernel<float, __nv_bfloat16><<<Blocks(m * n), kThreads, 0, stream>>>(c, ldc, static_cast<__nv_bfloat16*>(d), ldd, m,
                                                                               n, 1.0f);
  return cudaGetLastError();
}

}  // namespace yardmaster
