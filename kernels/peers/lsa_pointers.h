// File: kernels/peers/lsa_pointers.h
//
// Where this GPU sees the copies of a symmetric NCCL window: NCCL 2.28 tells device code only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

// addresses[p] = the start of the copy of the p-th rank within load-store reach of this one, p < ranks.
// `window` is an ncclWindow_t; `addresses` is device memory. One warp.
cudaError_t ReadLsaPointers(void* window, int ranks, uint64_t* addresses, cudaStream_t stream);

}  // namespace yardmaster
