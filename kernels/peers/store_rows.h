// File: kernels/peers/store_rows.h
//
// The bar for what is written into a peer's memory: plain 16-byte stores of a contiguous piece, by a given
// number of thread blocks, and nothing else.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

// to[i] = from[i] for `bytes` bytes, a multiple of 16, both 16-byte aligned. `blocks` blocks of 1024 threads,
// four stores in flight for each.
cudaError_t StoreBytes(const void* from, void* to, int64_t bytes, int blocks, cudaStream_t stream);

}  // namespace yardmaster
