#include "kernels/mark/mark.h"

namespace yardmaster {
namespace {

__global__ void MarkKernel(volatile int64_t* mark, int64_t value) { *mark = value; }

}  // namespace

cudaError_t WriteMark(int64_t* mark, int64_t value, cudaStream_t stream) {
  MarkKernel<<<1, 1, 0, stream>>>(mark, value);
  return cudaGetLastError();
}

}  // namespace yardmaster
