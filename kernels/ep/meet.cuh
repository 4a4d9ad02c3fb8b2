// File: kernels/ep/meet.cuh
//
// The steps of an operation (group.h) as device functions. All threads of a block call them together; what they return
// is the same for the whole block. Blocks have at least kEpMaxRanks threads.
#pragma once

#include "kernels/ep/group.h"

namespace yardmaster::ep {

__device__ __forceinline__ uint64_t LoadAcquire(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void StoreRelease(uint64_t* p, uint64_t v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ __forceinline__ int64_t Nanoseconds() {
  int64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// Bulk copies write through another proxy than plain stores: a fence on each side of a flag orders the two.
__device__ __forceinline__ void FenceProxies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

__device__ __forceinline__ EpControl* ControlOf(const EpGroup& g) {
  return reinterpret_cast<EpControl*>(g.control[g.rank]);
}
__device__ __forceinline__ EpControlLayout LayoutOf(const EpGroup& g) { return {g.size, g.words}; }
__device__ __forceinline__ uint64_t* ReadyAt(const EpGroup& g, int at, int from) {
  return reinterpret_cast<uint64_t*>(g.control[at] + LayoutOf(g).ready()) + from;
}
__device__ __forceinline__ uint64_t* DoneAt(const EpGroup& g, int at, int from) {
  return reinterpret_cast<uint64_t*>(g.control[at] + LayoutOf(g).done()) + from;
}
__device__ __forceinline__ int64_t* MessageAt(const EpGroup& g, uint64_t epoch, int at, int from) {
  return reinterpret_cast<int64_t*>(g.control[at] + LayoutOf(g).message(epoch, from));
}
// Word w of what `from` posted to this rank.
__device__ __forceinline__ int64_t Word(const EpGroup& g, uint64_t epoch, int from, int w) {
  return *reinterpret_cast<volatile int64_t*>(MessageAt(g, epoch, g.rank, from) + w);
}

// One thread. The first failure stays.
__device__ inline void Fail(const EpGroup& g, EpFault fault, EpOp op, int peer, int64_t expected, int64_t seen) {
  EpControl* c = ControlOf(g);
  if (atomicCAS(&c->failed, 0, 1) != 0) return;
  c->failure = {static_cast<int32_t>(fault), static_cast<int32_t>(op), g.rank, peer, expected, seen};
  if (g.poison != nullptr) *g.poison = 1;
  __threadfence_system();
}
__device__ __forceinline__ bool Failed(const EpGroup& g) {
  return *reinterpret_cast<volatile int32_t*>(&ControlOf(g)->failed) != 0;
}

// The operation's epoch; 0: an earlier operation failed, leave at once.
__device__ __forceinline__ uint64_t Begin(const EpGroup& g) {
  const EpControl* c = ControlOf(g);
  const bool failed = __syncthreads_or(threadIdx.x == 0 && Failed(g));
  if (failed) return 0;
  return *reinterpret_cast<const volatile unsigned long long*>(&c->epoch) + 1;
}

// One block. word(peer, w) is word w of the message to `peer`; `words` of them. Ends with the ready flags.
template <class F>
__device__ __forceinline__ void Post(const EpGroup& g, uint64_t epoch, int words, F&& word) {
  for (int i = static_cast<int>(threadIdx.x); i < g.size * words; i += static_cast<int>(blockDim.x)) {
    const int peer = i / words, w = i % words;
    MessageAt(g, epoch, peer, g.rank)[w] = word(peer, w);
  }
  __syncthreads();
  for (int p = static_cast<int>(threadIdx.x); p < g.size; p += static_cast<int>(blockDim.x)) {
    __threadfence_system();
    StoreRelease(ReadyAt(g, p, g.rank), epoch);
  }
}

// Until flags[p] reaches the epoch for every p; thread p waits for rank p. False: a deadline passed.
__device__ __forceinline__ bool Await(const EpGroup& g, const uint64_t* flags, uint64_t epoch, EpFault fault, EpOp op) {
  bool late = false;
  const int p = static_cast<int>(threadIdx.x);
  if (p < g.size) {
    uint64_t seen = LoadAcquire(flags + p);
    if (seen < epoch) {
      const int64_t until = Nanoseconds() + g.deadline_ns;
      while ((seen = LoadAcquire(flags + p)) < epoch) {
        if (Nanoseconds() > until) {
          Fail(g, fault, op, p, static_cast<int64_t>(epoch), static_cast<int64_t>(seen));
          late = true;
          break;
        }
        __nanosleep(40);
      }
    }
  }
  return !__syncthreads_or(late);
}

// Message word 0: all ranks must be at the same operation, with windows in the same regions.
__device__ __forceinline__ int64_t HeadWord(EpOp op, int region, int second_region) {
  return static_cast<int64_t>(op) | int64_t{region & 0xFFFF} << 16 | int64_t{second_region & 0xFFFF} << 32;
}

// Waits for every peer to be ready for the same operation.
__device__ __forceinline__ bool AwaitReady(const EpGroup& g, uint64_t epoch, EpOp op, int64_t head) {
  if (!Await(g, ReadyAt(g, g.rank, 0), epoch, EpFault::kNotReady, op)) return false;
  bool other = false;
  const int p = static_cast<int>(threadIdx.x);
  if (p < g.size) {
    const int64_t seen = Word(g, epoch, p, 0);
    if (seen != head) {
      Fail(g, EpFault::kOrder, op, p, head, seen);
      other = true;
    }
  }
  return !__syncthreads_or(other);
}

// The last of the operation's blocks to get here ends the operation: it returns true there, after all that the blocks
// wrote, and before anything is said to the peers. The others return false and may leave.
__device__ __forceinline__ bool LastBlock(const EpGroup& g) {
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    __threadfence_system();
    EpControl* c = ControlOf(g);
    last = atomicAdd(&c->arrived, 1u) == gridDim.x - 1;
    if (last) c->arrived = 0;
    __threadfence_system();
  }
  return __syncthreads_or(last);
}

// For the last block: the operation is over.
__device__ __forceinline__ void EndEpoch(const EpGroup& g, uint64_t epoch) {
  __syncthreads();
  if (threadIdx.x == 0) *reinterpret_cast<volatile unsigned long long*>(&ControlOf(g)->epoch) = epoch;
}

// For the last block: tells every peer that this rank no longer touches their memory, waits for the same from them, and
// ends the epoch. A rank that failed tells nothing, so that its peers' deadlines name it.
__device__ __forceinline__ void Finish(const EpGroup& g, uint64_t epoch, EpOp op) {
  const bool failed = __syncthreads_or(threadIdx.x == 0 && Failed(g));
  if (!failed) {
    for (int p = static_cast<int>(threadIdx.x); p < g.size; p += static_cast<int>(blockDim.x)) {
      __threadfence_system();
      StoreRelease(DoneAt(g, p, g.rank), epoch);
    }
    Await(g, DoneAt(g, g.rank, 0), epoch, EpFault::kNotDone, op);
  }
  EndEpoch(g, epoch);
}

}  // namespace yardmaster::ep
