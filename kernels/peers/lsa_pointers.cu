#include <nccl.h>
#include <nccl_device.h>

#include "kernels/peers/lsa_pointers.h"

namespace yardmaster {
namespace {

__global__ void __launch_bounds__(32) LsaPointersKernel(ncclWindow_t window, int ranks, uint64_t* addresses) {
  for (int p = threadIdx.x; p < ranks; p += 32)
    addresses[p] = reinterpret_cast<uint64_t>(ncclGetLsaPointer(window, 0, p));
}

}  // namespace

cudaError_t ReadLsaPointers(void* window, int ranks, uint64_t* addresses, cudaStream_t stream) {
  LsaPointersKernel<<<1, 32, 0, stream>>>(static_cast<ncclWindow_t>(window), ranks, addresses);
  return cudaGetLastError();
}

}  // namespace yardmaster
