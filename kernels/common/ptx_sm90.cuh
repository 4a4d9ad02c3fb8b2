// File: kernels/common/ptx_sm90.cuh
//
// The Hopper instructions that CUDA C++ has no name for: mbarriers, the tensor copy engine (TMA),
// clusters, register reallocation. One thin function per instruction; the PTX ISA page of the
// instruction is its documentation. Shared-memory addresses are 32-bit (Shared). An address names
// the same place in every block of a cluster.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster::sm90 {

using Shared = uint32_t;

__device__ __forceinline__ Shared SharedAddress(const void* p) {
  return static_cast<Shared>(__cvta_generic_to_shared(p));
}

// ---- clusters ---------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all blocks of the cluster.
__device__ __forceinline__ void ClusterSync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

// A barrier of `threads` threads of the block; 0 is __syncthreads.
__device__ __forceinline__ void NamedBarrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- mbarriers --------------------------------------------------------------------------------

__device__ __forceinline__ void BarrierInit(Shared barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the other block and to the copy engine.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void BarrierExpectBytes(Shared barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void BarrierArrive(Shared barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier that lies at the same address in block `rank` of the cluster. Without the
// .cluster scope, which would cost a fence of the whole GPU: what it releases are reads of the
// tensor cores that have been waited for.
__device__ __forceinline__ void BarrierArriveCluster(Shared barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Waits until the phase of the given parity is complete.
__device__ __forceinline__ void BarrierWait(Shared barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// ---- tensor copies ----------------------------------------------------------------------------
// Coordinates run from the innermost dimension out, in elements. Elements outside the map's extent
// are read as zeros and are not written.

__device__ __forceinline__ void PrefetchMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void TmaLoad(Shared to, const CUtensorMap* map, Shared barrier, int c0,
                                        int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

// The box lands at the same address, and signals the barrier at the same address, in every block
// named in `blocks`.
__device__ __forceinline__ void TmaLoadMulticast(Shared to, const CUtensorMap* map, Shared barrier,
                                                 uint16_t blocks, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
      "cluster"
      " [%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(to),
      "l"(map), "r"(barrier), "h"(blocks), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

__device__ __forceinline__ void TmaStore(const CUtensorMap* map, Shared from, int c0, int c1,
                                         int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

// Adds the box to memory, element by element, in the map's data type.
__device__ __forceinline__ void TmaReduceAdd(const CUtensorMap* map, Shared from, int c0, int c1,
                                             int c2) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4}], "
      "[%1];" ::"l"(map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

__device__ __forceinline__ void BulkCommit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most `kPending` of this thread's store groups still read shared memory.
template <int kPending>
__device__ __forceinline__ void BulkWaitRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Waits until this thread's stores are complete.
__device__ __forceinline__ void BulkWaitAll() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Ordinary writes to shared memory before it are seen by the copy engine and the tensor cores.
__device__ __forceinline__ void FenceAsyncShared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- registers, matrices ----------------------------------------------------------------------

template <int kRegisters>
__device__ __forceinline__ void RegistersGrow() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void RegistersShrink() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void StoreMatrix4(Shared row, uint32_t m0, uint32_t m1, uint32_t m2,
                                             uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(m0), "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}

// The same; row r of a stored matrix is column r of the registers' matrix.
__device__ __forceinline__ void StoreMatrix4Transposed(Shared row, uint32_t m0, uint32_t m1,
                                                       uint32_t m2, uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(m0), "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}

__device__ __forceinline__ void StoreShared2(Shared to, uint32_t a, uint32_t b) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}

// Two floats to two bf16, round to nearest even; `low` ends in the lower half.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Position in a ring of buffers; parity flips on every lap.
template <int kSize>
struct RingOf {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++stage == kSize) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace yardmaster::sm90
