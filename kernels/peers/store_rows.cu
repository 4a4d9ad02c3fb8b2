#include "kernels/peers/store_rows.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 1024, kInFlight = 4;

__global__ void __launch_bounds__(kThreads) StoreKernel(const uint4* from, uint4* to, int64_t n) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kInFlight - 1) * step < n; i += kInFlight * step) {
    uint4 values[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) values[j] = from[i + j * step];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) to[i + j * step] = values[j];
  }
  for (; i < n; i += step) to[i] = from[i];
}

}  // namespace

cudaError_t StoreBytes(const void* from, void* to, int64_t bytes, int blocks, cudaStream_t stream) {
  if (bytes % 16 != 0 || blocks < 1) return cudaErrorInvalidValue;
  if (bytes == 0) return cudaSuccess;
  StoreKernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(static_cast<const uint4*>(from),
                                                                      static_cast<uint4*>(to), bytes / 16);
  return cudaGetLastError();
}

}  // namespace yardmaster
