// File: kernels/ep/bulk_copy.cuh
//
// One-dimensional bulk copies between global memory, here or a peer's, and shared memory. Addresses and lengths are
// multiples of 16 bytes. A store is complete after sm90::BulkWaitAll of the thread that issued it.
#pragma once

#include <cstdint>

#include "kernels/common/ptx_sm90.cuh"

namespace yardmaster::ep {

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ void BulkLoad(sm90::Shared to, const void* from, uint32_t bytes, sm90::Shared barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void BulkStore(void* to, sm90::Shared from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}

#endif

}  // namespace yardmaster::ep
