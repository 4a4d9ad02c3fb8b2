// File: kernels/common/copy_async.cuh
//
// Copies of 16 bytes from global to shared memory that a thread has under way without registers to hold them
// (cp.async, sm_80 on). A thread that reads only what it copied itself needs no barrier: WaitForCopies
// suffices.
#pragma once

#include <cuda_runtime.h>

namespace yardmaster {

// Both addresses are multiples of 16 bytes.
__device__ __forceinline__ void CopyAsync(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
}

// Ends a group of copies, which may be empty.
__device__ __forceinline__ void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all groups of this thread but the last kLeft are there.
template <int kLeft>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace yardmaster
