#include "tests/cuda_toolchain.h"

namespace {

__global__ void AddOneKernel(float* data, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) {
    data[i] += 1.0f;
  }
}

}  // namespace

cudaError_t AddOne(float* data, int n, cudaStream_t stream) {
  AddOneKernel<<<(n + 255) / 256, 256, 0, stream>>>(data, n);
  return cudaGetLastError();
}
