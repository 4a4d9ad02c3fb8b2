// File: kernels/grouped_gemm_fp8/sm90_fp8_pipeline.cuh
//
// What the two FP8 kernels share: rings of buffers, the queue of work items that a warp deals and
// the producer and the consumers take, where groups begin, and the multiplication of a block.
#pragma once

#include "kernels/common/ptx_sm90.cuh"
#include "kernels/common/wgmma_sm90.cuh"
#include "kernels/grouped_gemm_fp8/sm90_fp8_config.h"
#include "kernels/grouped_gemm_fp8/wgmma_e4m3.cuh"

namespace yardmaster::sm90fp8 {

using sm90::RingOf;
using sm90::Shared;
using sm90::WorkItem;

// The shuffle tells the compiler that a value is the same in all threads of a warp.
__device__ __forceinline__ int Uniform(int value) { return __shfl_sync(~0u, value, 0); }

__device__ __forceinline__ float LoadShared(Shared from) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from));
  return v;
}
__device__ __forceinline__ float2 LoadShared2(Shared from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from));
  return v;
}

// Work items in shared memory, dealt before they are needed, for kWarps that consume.
template <int kWarps>
class ItemQueue {
 public:
  using Ring = RingOf<kQueueItems>;
  static constexpr int kBarrierBytes = 2 * kQueueItems * 8;
  static constexpr int kItemBytes = kQueueItems * sizeof(WorkItem);

  __device__ __forceinline__ ItemQueue(Shared barriers, uint8_t* items)
      : barriers_(barriers), items_(reinterpret_cast<WorkItem*>(items)) {}

  __device__ __forceinline__ void Init() const {
    for (int s = 0; s < kQueueItems; ++s) {
      sm90::BarrierInit(Full(s), 1);
      sm90::BarrierInit(Empty(s), kWarps + 1);
    }
  }

  // The dealing warp; an item of expert -1 is the end.
  __device__ __forceinline__ void Push(Ring* ring, const WorkItem& item) const {
    sm90::BarrierWait(Empty(ring->stage), ring->parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      items_[ring->stage] = item;
      sm90::BarrierArrive(Full(ring->stage));
    }
    __syncwarp();
    ring->Advance();
  }

  // The producing thread. False at the end.
  __device__ __forceinline__ bool Pop(Ring* ring, WorkItem* item) const {
    sm90::BarrierWait(Full(ring->stage), ring->parity);
    *item = items_[ring->stage];
    sm90::BarrierArrive(Empty(ring->stage));
    ring->Advance();
    return item->expert >= 0;
  }

  // A consuming warp. False at the end.
  __device__ __forceinline__ bool PopUniform(Ring* ring, WorkItem* item) const {
    sm90::BarrierWait(Full(ring->stage), ring->parity);
    const WorkItem& slot = items_[ring->stage];
    item->expert = Uniform(slot.expert);
    item->row_begin = Uniform(slot.row_begin);
    item->row_end = Uniform(slot.row_end);
    item->m_group = Uniform(slot.m_group);
    item->n_begin = Uniform(slot.n_begin);
    item->n_size = Uniform(slot.n_size);
    if (threadIdx.x % 32 == 0) sm90::BarrierArrive(Empty(ring->stage));
    __syncwarp();
    ring->Advance();
    return item->expert >= 0;
  }

 private:
  __device__ __forceinline__ Shared Full(int slot) const { return barriers_ + 8 * slot; }
  __device__ __forceinline__ Shared Empty(int slot) const {
    return barriers_ + 8 * (kQueueItems + slot);
  }

  const Shared barriers_;
  WorkItem* const items_;
};

// The barriers of `kStages` buffers that both blocks of a cluster fill and read.
template <int kStages, int kWarps>
class StageBarriers {
 public:
  static constexpr int kBytes = 2 * kStages * 8;

  __device__ __forceinline__ explicit StageBarriers(Shared barriers) : barriers_(barriers) {}

  __device__ __forceinline__ Shared Full(int stage) const { return barriers_ + 8 * stage; }
  __device__ __forceinline__ Shared Empty(int stage) const {
    return barriers_ + 8 * (kStages + stage);
  }

  __device__ __forceinline__ void Init() const {
    for (int s = 0; s < kStages; ++s) {
      sm90::BarrierInit(Full(s), 1);
      sm90::BarrierInit(Empty(s), kWarps * kCluster);
    }
  }

  // Every consuming warp signals the producers of all blocks, since all write to this block's
  // stages.
  __device__ __forceinline__ void Release(int stage) const {
    const uint32_t lane = threadIdx.x % 32;
    if (lane < kCluster) sm90::BarrierArriveCluster(Empty(stage), lane);
  }

 private:
  const Shared barriers_;
};

// What a block of either kernel has behind its buffers, from kBegin of shared memory on: barriers of
// kStages buffers, the queue of work items, where groups begin. kGroups consumer warpgroups.
template <int kBegin, int kStages, int kGroups>
class PipelineBlock {
 protected:
  static constexpr int kWarps = 4 * kGroups;
  using Queue = ItemQueue<kWarps>;

 private:
  static constexpr int kQueueOffset = kBegin + StageBarriers<kStages, kWarps>::kBytes;
  static constexpr int kItemOffset = kQueueOffset + Queue::kBarrierBytes;
  static constexpr int kStartOffset = kItemOffset + Queue::kItemBytes;

 public:
  using Ring = RingOf<kStages>;
  static constexpr int kWarpgroups = kGroups;
  static constexpr int kSharedBytes = kStartOffset + 4 * (kMaxGroups + 1);
  static_assert(kSharedBytes <= sm90::kSharedMemoryLimit);

  __device__ __forceinline__ void InitBarriers() const {
    stages_.Init();
    queue_.Init();
    sm90::FenceBarrierInit();
  }

 protected:
  __device__ __forceinline__ explicit PipelineBlock(uint8_t* shared)
      : memory_(sm90::SharedAddress(shared)),
        row_start_(reinterpret_cast<int*>(shared + kStartOffset)),
        stages_(memory_ + kBegin),
        queue_(memory_ + kQueueOffset, shared + kItemOffset),
        rank_(static_cast<int>(sm90::ClusterRank())) {}

  const Shared memory_;
  int* const row_start_;
  const StageBarriers<kStages, kWarps> stages_;
  const Queue queue_;
  const int rank_;
};

// The body of either kernel. Of a Block: FindGroups and Deal are for one warp, Prefetch and Produce
// for one thread, Consume for Block::kWarpgroups.
template <class Block, class Maps>
__device__ __forceinline__ void RunBlock(const Block& block, const Maps& maps) {
  if (threadIdx.x < 32) {
    block.FindGroups();
  } else if (threadIdx.x == 32) {
    Block::Prefetch(maps);
    block.InitBarriers();
  }
  __syncthreads();
  sm90::ClusterSync();
  if (threadIdx.x < 128) {
    sm90::RegistersShrink<kDealerRegisters<Block::kWarpgroups>>();
    if (threadIdx.x == 0) {
      block.Produce(maps);
    } else if (threadIdx.x / 32 == 1) {
      block.Deal();
    }
    __syncwarp();
  } else {
    sm90::RegistersGrow<kConsumerRegisters<Block::kWarpgroups>>();
    block.Consume(maps);
    __syncwarp();
  }
  // A block's shared memory must outlive what its peers still write there.
  sm90::ClusterSync();
}

// Starts product = a b^T over a block of the contraction: 64 rows of A, 128 of B, 128 bytes each.
__device__ __forceinline__ void Multiply(Shared a, Shared b, float (&product)[64]) {
  const uint64_t a_tile = sm90::MatrixDescriptor<true>(a, 0);
  const uint64_t b_tile = sm90::MatrixDescriptor<true>(b, 0);
  sm90::WgmmaFence();
  WgmmaE4m3<false>(product, a_tile, b_tile);
#pragma unroll
  for (int step = 1; step < kTileK / 32; ++step)
    WgmmaE4m3<true>(product, a_tile + step * kDescriptorStepK32,
                    b_tile + step * kDescriptorStepK32);
  sm90::WgmmaCommit();
}

// Waits for it.
__device__ __forceinline__ void FinishMultiply(float (&product)[64]) {
  sm90::WgmmaWait<0>();
  sm90::HoldAccumulators<64>(product);
}

// Where groups begin: int64 offsets[groups + 1] on the device; null: one group of all rows.
struct Offsets {
  const int64_t* data;
  int groups;
  int rows;  // R

  __device__ __forceinline__ int At(int i) const {
    if (data == nullptr) return i == 0 ? 0 : rows;
    const int64_t at = data[i];
    return static_cast<int>(at < 0 ? 0 : at < rows ? at : rows);
  }

  // One warp: groups follow each other.
  __device__ __forceinline__ void Load(int* row_start) const {
    for (int i = threadIdx.x % 32; i <= groups; i += 32) row_start[i] = At(i);
  }

  // One warp: each group's rows are rounded up to 128.
  __device__ __forceinline__ void LoadAligned(int* row_start) const {
    const int lane = threadIdx.x % 32;
    int before = 0;
    if (lane == 0) row_start[0] = 0;
    for (int first = 0; first < groups; first += 32) {
      const int i = first + lane;
      const int own = i < groups ? At(i + 1) - At(i) : 0;
      int end = (own + kTileK - 1) / kTileK * kTileK;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(~0u, end, step);
        if (lane >= step) end += other;
      }
      end += before;
      if (i < groups) row_start[i + 1] = end;
      before = __shfl_sync(~0u, end, 31);
    }
  }
};

}  // namespace yardmaster::sm90fp8
