// File: kernels/grouped_gemm/sm90_kernel.cuh
//
// Grouped GEMM for Hopper: D = A B per expert, one persistent launch. A is the operand of 128-row
// tiles (M), B of 256-column tiles (N). The ragged rows are N in forward and dgrad, whose D is
// therefore stored transposed:
//
//            M   N             contraction     A            B            D
//   forward  N   rows, ragged  K               w_LNK (K)    x_RK  (K)    y_RN^T   bf16
//   dgrad    K   rows, ragged  N               w_LNK (MN)   dy_RN (K)    dx_RK^T  bf16
//   wgrad    N   K             rows, ragged    dy_RN (MN)   x_RK  (MN)   dw_LNK   bf16 or fp32
//   (K): the contraction is contiguous in memory; (MN): the other index is. wgmma reads both, so
//   nothing is transposed.
//
// Cost       2 R N K FLOPs. Bound by the tensor cores, that is by power: at the 700 W cap the clock
//            falls to 1.4 GHz. A cluster reads 64 KB from L2 per 8.4 MFLOP (256 x 256 x 64), the
//            multicast B once for both blocks. wgrad also writes (beta 1: adds) 2 or 4 bytes per
//            weight; with many experts that takes as long as a third of the arithmetic.
// Structure  A warp deals the block's tiles (sm90_schedule.h, sm90_deal.h) into a queue of four,
//            before they are needed. One producer thread keeps kStages operand tiles in flight
//            (TMA, 128-byte swizzle; each block of the cluster loads its part of B for both). Two
//            consumer warpgroups own 64 x 256 outputs each in registers. What a tile leaves to
//            store is packed into registers of its own and stored while the next tile is
//            multiplied.
// Numerics   BF16 products, FP32 accumulation in the tensor core along the whole contraction,
//            rounded once to the output type. Every output element belongs to one block and is
//            written (or added to) once: deterministic.
// Tails      Rows are cut by the coordinates of the ragged map (tensor_map.h): what lies beyond the
//            expert's last row is read as zeros, never from memory, and not written, so it may
//            hold NaN; wgrad multiplies a last block that is not full in steps of 16. An expert's
//            tiles are equally large, in steps of 16 rows (sm90_schedule.h), and multiplied in that
//            width. Other edges are cut by the maps.
// Launch     Clusters of 2 blocks of 384 threads, one block per multiprocessor, 226 KB of shared
//            memory; sm_90a.
// Reference  tools/bench/grouped_gemm_check.cu (double); measured: docs/performance.md.
#pragma once

#include "kernels/common/ptx_sm90.cuh"
#include "kernels/common/wgmma_sm90.cuh"
#include "kernels/grouped_gemm/sm90_config.h"
#include "kernels/grouped_gemm/sm90_deal.h"
#include "kernels/grouped_gemm/sm90_schedule.h"
#include "kernels/grouped_gemm/sm90_store.cuh"

namespace yardmaster::sm90 {

struct GemmParams {
  const int64_t* offsets;  // [experts + 1]
  ScheduleShape schedule;
  int rows;            // R
  int m_extent;        // of D
  int fixed_k_blocks;  // forward, dgrad; without those that fill up to Store::kRounds
  bool accumulate;     // wgrad: add to D
  int store_pause;     // FP32: blocks multiplied between two parts of a store
  uint32_t zero;       // 0: a value that the compiler does not know
  SquaresOut squares;  // kSquares: whole tiles only
};

using Ring = RingOf<kStages>;
using QueueRing = RingOf<kQueueItems>;
static_assert(sizeof(WorkItem) <= kQueueItemBytes);

// kSquares: also adds up the squares of what it writes (sm90_squares.cuh), beta 0 only.
template <GemmOp kOp, bool kFp32, bool kSquares>
class GemmBlock {
 public:
  static constexpr bool kRaggedN = kOp != GemmOp::kWgrad;
  static constexpr bool kAKMajor = kOp == GemmOp::kForward;
  static constexpr bool kBKMajor = kOp != GemmOp::kWgrad;
  static constexpr int kBoxBytes = 64 * 128;  // every load: 64 rows of 128 bytes
  static constexpr int kABytes = 2 * kBoxBytes;
  static constexpr int kBBoxes = 4;
  using Store = TileStore<kRaggedN, kFp32, kSquares>;

  __device__ __forceinline__ GemmBlock(const GemmParams& params, uint8_t* shared)
      : params_(params),
        memory_(SharedAddress(shared)),
        queue_(shared + kQueueOffset),
        row_start_(reinterpret_cast<const int*>(shared + kRowStartOffset)),
        rank_(ClusterRank()) {}

  __device__ __forceinline__ Shared Full(int stage) const {
    return memory_ + kBarrierOffset + 8 * stage;
  }
  __device__ __forceinline__ Shared Empty(int stage) const {
    return memory_ + kBarrierOffset + 8 * (kStages + stage);
  }
  __device__ __forceinline__ Shared QueueFull(int slot) const {
    return memory_ + kBarrierOffset + 8 * (2 * kStages + slot);
  }
  __device__ __forceinline__ Shared QueueEmpty(int slot) const {
    return memory_ + kBarrierOffset + 8 * (2 * kStages + kQueueItems + slot);
  }
  __device__ __forceinline__ Shared A(int stage) const { return memory_ + stage * kStageBytes; }
  __device__ __forceinline__ Shared B(int stage) const { return A(stage) + kABytes; }

  __device__ __forceinline__ void InitBarriers() const {
    for (int s = 0; s < kStages; ++s) {
      BarrierInit(Full(s), 1);
      BarrierInit(Empty(s), kConsumerWarps * kCluster);
    }
    for (int s = 0; s < kQueueItems; ++s) {
      BarrierInit(QueueFull(s), 1);
      BarrierInit(QueueEmpty(s), kConsumerWarps + 1);
    }
    FenceBarrierInit();
  }

  // ---- dealer: one warp -----------------------------------------------------------------------

  // Queues the cluster's items in the order in which they are computed; both blocks the same.
  __device__ __forceinline__ void Deal() {
    const int clusters = gridDim.x / kCluster, own = blockIdx.x / kCluster;
    QueueRing ring;
    WorkItem item;
    if constexpr (kRaggedN) {
      Schedule schedule(params_.schedule, row_start_);
      for (int index = own; schedule.Find(index, &item); index += clusters) Push(&ring, item);
    } else {
      RunList<WarpLanes> runs(params_.schedule, row_start_, clusters);
      Dealer<WarpLanes> dealer(clusters, own);
      ExpertItems items(params_.schedule);
      for (Run run; runs.Next(&run);) {
        if (run.expert != items.expert()) items.Load(row_start_, run.expert);
        const int count = dealer.Deal(run.count, run.cost);
        for (int j = 0; j < count; ++j) Push(&ring, items.Item(run.first + dealer.Index(j)));
      }
    }
    item.expert = -1;
    Push(&ring, item);
  }

  __device__ __forceinline__ void Push(QueueRing* ring, const WorkItem& item) const {
    BarrierWait(QueueEmpty(ring->stage), ring->parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      *QueueSlot(ring->stage) = item;
      BarrierArrive(QueueFull(ring->stage));
    }
    __syncwarp();
    ring->Advance();
  }

  __device__ __forceinline__ WorkItem* QueueSlot(int slot) const {
    return reinterpret_cast<WorkItem*>(queue_ + slot * kQueueItemBytes);
  }

  // Zero, or at least Store::kRounds. Of blocks beyond the contraction's end A is read as zeros and
  // B is the first block again, since no box may lie outside a ragged map altogether
  // (tensor_map.h).
  __device__ __forceinline__ int KBlocks(const WorkItem& item) const {
    if constexpr (kRaggedN) return max(Store::kRounds, params_.fixed_k_blocks);
    const int rows = item.row_end - item.row_begin;
    return rows == 0 ? 0 : max(Store::kRounds, (rows + kTileK - 1) / kTileK);
  }

  // ---- producer: one thread -------------------------------------------------------------------

  __device__ __forceinline__ void Produce(const CUtensorMap* a_map, const CUtensorMap* b_map,
                                          const CUtensorMap* zeros_map) {
    Ring ring;
    QueueRing queue;
    for (;;) {
      BarrierWait(QueueFull(queue.stage), queue.parity);
      const WorkItem item = *QueueSlot(queue.stage);
      BarrierArrive(QueueEmpty(queue.stage));
      queue.Advance();
      if (item.expert < 0) return;
      const int k_blocks = KBlocks(item);
      const int m = (item.m_group * kCluster + rank_) * kTileM;
      const int boxes = (item.n_size + 63) / 64;
      for (int kb = 0; kb < k_blocks; ++kb) {
        const Shared full = Full(ring.stage);
        BarrierWait(Empty(ring.stage), ring.parity ^ 1);
        BarrierExpectBytes(full, kABytes + boxes * kBoxBytes);
        LoadA(a_map, zeros_map, item, ring.stage, kb, m, 0);
        LoadA(a_map, zeros_map, item, ring.stage, kb, m, 1);
#pragma unroll
        for (int i = 0; i < kBBoxes / kCluster; ++i) {
          const int box = rank_ * (kBBoxes / kCluster) + i;
          if (box < boxes) LoadB(b_map, item, ring.stage, kb, box);
        }
        ring.Advance();
      }
    }
  }

  // Rows 64 half .. 64 half + 63 of the A tile.
  __device__ __forceinline__ void LoadA(const CUtensorMap* map, const CUtensorMap* zeros,
                                        const WorkItem& item, int stage, int kb, int m,
                                        int half) const {
    const Shared to = A(stage) + half * kBoxBytes;
    const int k = kb * kTileK;
    m += 64 * half;
    if constexpr (kOp == GemmOp::kForward) {
      TmaLoad(to, map, Full(stage), k, m, item.expert);
    } else if constexpr (kOp == GemmOp::kDgrad) {
      TmaLoad(to, map, Full(stage), m, k, item.expert);
    } else {
      const int valid = min(kTileK, item.row_end - item.row_begin - k);
      if (valid > 0 && m < params_.m_extent) {
        TmaLoad(to, map, Full(stage), m, 64 - valid, item.row_begin + k + valid);
      } else {
        TmaLoad(to, zeros, Full(stage), 64, 0, 0);
      }
    }
  }

  // Columns 64 box .. 64 box + 63 of the B tile, for the whole cluster.
  __device__ __forceinline__ void LoadB(const CUtensorMap* map, const WorkItem& item, int stage,
                                        int kb, int box) const {
    const int k_extent = kRaggedN ? params_.fixed_k_blocks * kTileK : item.row_end - item.row_begin;
    const int k = kb * kTileK < k_extent ? kb * kTileK : 0;
    const int n = item.n_begin + 64 * box;
    const int valid = kRaggedN ? min(64, item.n_size - 64 * box) : min(kTileK, k_extent - k);
    const int c0 = kRaggedN ? k : n;
    const int row = kRaggedN ? n : item.row_begin + k;
    const Shared to = B(stage) + box * kBoxBytes;
    TmaLoadMulticast(to, map, Full(stage), (1 << kCluster) - 1, c0, 64 - valid, row + valid);
  }

  // ---- consumers: two warpgroups --------------------------------------------------------------

  // What a warp carries from tile to tile: what of the tile before is not yet stored. BF16: all of
  // it; FP32: the high half.
  struct State {
    Ring ring;
    typename Store::Place place;
    typename Store::Packed packed;
    float squares;  // kSquares: of what is stored of that tile
  };

  __device__ __forceinline__ void Consume(const CUtensorMap* d_map) {
    const int group = Uniform(threadIdx.x / 128) - 1;
    Store store(d_map, memory_ + kStages * kStageBytes + group * kStoreBytes, group,
                params_.accumulate);
    State state;
    QueueRing queue;
    WorkItem item;
    while (PopUniform(&queue, &item)) {
      const typename Store::Place place = {
          (item.m_group * kCluster + static_cast<int>(rank_)) * kTileM, item.n_begin, item.n_size,
          item.expert, params_.m_extent};
      const int k_blocks = KBlocks(item);
      if constexpr (!kRaggedN) {
        if (k_blocks == 0) {
          store.Zeros(place);
          if constexpr (kSquares) store.WriteSquares(params_.squares, place, 0.0f);
          continue;
        }
      }
      const int tail_steps = ((item.row_end - item.row_begin - 1) % kTileK) / 16 + 1;
      if constexpr (kSquares) {
        Tile<256>(store, group, k_blocks, tail_steps, place, &state);
        continue;
      }
      switch ((item.n_size - 128 + kRowUnit - 1) / kRowUnit) {
        case 8:
          Tile<256>(store, group, k_blocks, tail_steps, place, &state);
          break;
        case 7:
          Tile<240>(store, group, k_blocks, tail_steps, place, &state);
          break;
        case 6:
          Tile<224>(store, group, k_blocks, tail_steps, place, &state);
          break;
        case 5:
          Tile<208>(store, group, k_blocks, tail_steps, place, &state);
          break;
        case 4:
          Tile<192>(store, group, k_blocks, tail_steps, place, &state);
          break;
        case 3:
          Tile<176>(store, group, k_blocks, tail_steps, place, &state);
          break;
        case 2:
          Tile<160>(store, group, k_blocks, tail_steps, place, &state);
          break;
        case 1:
          Tile<144>(store, group, k_blocks, tail_steps, place, &state);
          break;
        default:
          Tile<128>(store, group, k_blocks, tail_steps, place, &state);
          break;
      }
    }
    store.WriteRest(state.place, state.packed);
    if constexpr (kSquares) {
#pragma unroll
      for (int i = 0; i < Store::kRounds; ++i)
        state.squares += Store::RoundSquares(state.packed, i);
      store.WriteSquares(params_.squares, state.place, state.squares);
    }
    store.Finish();
  }

  // A finished tile is packed into registers of its own and stored while the next one's first
  // blocks are multiplied. FP32 has room for half of a tile there; the other half is stored at
  // once.
  template <int kN>
  __device__ __forceinline__ void Tile(Store& store, int group, int k_blocks, int tail_steps,
                                       const typename Store::Place& place, State* state) const {
    Ring ring = state->ring;
    Ring unreleased = ring;
    float d[128];
    int kb = 0;
#pragma unroll
    for (int i = 0; i < Store::kRounds; ++i) {
      BarrierWait(Full(ring.stage), ring.parity);
      WgmmaFence();
      if (i == 0) {
        Multiply<kN, false>(ring.stage, group, d);
      } else {
        Multiply<kN, true>(ring.stage, group, d);
      }
      WgmmaCommit();
      store.WriteRound(state->place, state->packed, i);
      if constexpr (kSquares) {
        state->squares += Store::RoundSquares(state->packed, i);
        if (i + 1 == Store::kRounds)
          store.WriteSquares(params_.squares, state->place, state->squares);
      }
      if (i > 0) {
        WgmmaWait<1>();
        Release(unreleased.stage);
        unreleased.Advance();
      }
      ring.Advance();
      ++kb;
      if constexpr (kFp32) {
        const int pause =
            i + 1 < Store::kRounds ? min(params_.store_pause, k_blocks / Store::kRounds - 1) : 0;
        MultiplyBlocks<kN>(kb + pause, group, &kb, &ring, &unreleased, d);
      }
    }
    if constexpr (kRaggedN) {
      MultiplyBlocks<kN>(k_blocks, group, &kb, &ring, &unreleased, d);
    } else {
      const bool cut = tail_steps < kTileK / 16;
      MultiplyBlocks<kN>(k_blocks - cut, group, &kb, &ring, &unreleased, d);
      if (kb < k_blocks) MultiplyTail<kN>(tail_steps, group, &ring, &unreleased, d);
    }
    WgmmaWait<0>();
    HoldAccumulators<kN / 2>(d);
    Release(unreleased.stage);
    if constexpr (kFp32) state->squares = store.WriteLowHalf(place, d);
    state->packed = Store::template Pack<kN>(d, params_.zero);
    state->place = place;
    state->ring = ring;
  }

  // Blocks *kb to end - 1 of the contraction. One block stays in flight.
  template <int kN>
  __device__ __forceinline__ void MultiplyBlocks(int end, int group, int* kb, Ring* ring,
                                                 Ring* unreleased, float (&d)[128]) const {
#pragma unroll 1
    for (; *kb < end; ++*kb) {
      BarrierWait(Full(ring->stage), ring->parity);
      WgmmaFence();
      Multiply<kN, true>(ring->stage, group, d);
      WgmmaCommit();
      WgmmaWait<1>();
      Release(unreleased->stage);
      unreleased->Advance();
      ring->Advance();
    }
  }

  // One block more, of which only the first `steps` x 16 of the contraction are not zeros.
  template <int kN>
  __device__ __forceinline__ void MultiplyTail(int steps, int group, Ring* ring, Ring* unreleased,
                                               float (&d)[128]) const {
    BarrierWait(Full(ring->stage), ring->parity);
    WgmmaFence();
    uint64_t a = ADescriptor(ring->stage, group), b = BDescriptor(ring->stage);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      Wgmma<kN, kAKMajor, kBKMajor, true>(d, a, b);
      a += kDescriptorStepK16<kAKMajor>;
      b += kDescriptorStepK16<kBKMajor>;
    }
    WgmmaCommit();
    WgmmaWait<1>();
    Release(unreleased->stage);
    unreleased->Advance();
    ring->Advance();
  }

  // The shuffles tell the compiler that a value is the same in all threads of a warp: where it has
  // to suspect branches that differ, it waits for every wgmma before the next.
  __device__ __forceinline__ static int Uniform(int value) { return __shfl_sync(~0u, value, 0); }

  // False at the end of the queue.
  __device__ __forceinline__ bool PopUniform(QueueRing* ring, WorkItem* item) const {
    BarrierWait(QueueFull(ring->stage), ring->parity);
    const WorkItem* slot = QueueSlot(ring->stage);
    item->expert = Uniform(slot->expert);
    item->row_begin = Uniform(slot->row_begin);
    item->row_end = Uniform(slot->row_end);
    item->m_group = Uniform(slot->m_group);
    item->n_begin = Uniform(slot->n_begin);
    item->n_size = Uniform(slot->n_size);
    if (threadIdx.x % 32 == 0) BarrierArrive(QueueEmpty(ring->stage));
    __syncwarp();
    ring->Advance();
    return item->expert >= 0;
  }

  __device__ __forceinline__ uint64_t ADescriptor(int stage, int group) const {
    return MatrixDescriptor<kAKMajor>(A(stage) + group * kBoxBytes, kBoxBytes);
  }

  __device__ __forceinline__ uint64_t BDescriptor(int stage) const {
    return MatrixDescriptor<kBKMajor>(B(stage), kBoxBytes);
  }

  // kN columns of the tile. `kAccumulate` false starts a sum.
  template <int kN, bool kAccumulate>
  __device__ __forceinline__ void Multiply(int stage, int group, float (&d)[128]) const {
    const uint64_t a = ADescriptor(stage, group);
    const uint64_t b = BDescriptor(stage);
    Wgmma<kN, kAKMajor, kBKMajor, kAccumulate>(d, a, b);
#pragma unroll
    for (int step = 1; step < kTileK / 16; ++step) {
      Wgmma<kN, kAKMajor, kBKMajor, true>(d, a + step * kDescriptorStepK16<kAKMajor>,
                                          b + step * kDescriptorStepK16<kBKMajor>);
    }
  }

  // Every warp signals the producers of all blocks, since all write to this block's stages.
  __device__ __forceinline__ void Release(int stage) const {
    const uint32_t lane = threadIdx.x % 32;
    if (lane < kCluster) BarrierArriveCluster(Empty(stage), lane);
  }

 private:
  const GemmParams& params_;
  const Shared memory_;
  uint8_t* const queue_;
  const int* const row_start_;
  const uint32_t rank_;
};

template <GemmOp kOp, bool kFp32, bool kSquares>
__global__ void __launch_bounds__(kThreads, 1)
    GroupedGemmKernel(const __grid_constant__ CUtensorMap a_map,
                      const __grid_constant__ CUtensorMap b_map,
                      const __grid_constant__ CUtensorMap d_map,
                      const __grid_constant__ CUtensorMap zeros_map,
                      const __grid_constant__ GemmParams params) {
  extern __shared__ __align__(1024) uint8_t shared[];
  int* row_start = reinterpret_cast<int*>(shared + kRowStartOffset);
  GemmBlock<kOp, kFp32, kSquares> block(params, shared);

  for (int i = threadIdx.x; i <= params.schedule.experts; i += kThreads) {
    const int64_t offset = params.offsets[i];
    row_start[i] = static_cast<int>(offset < 0 ? 0 : offset < params.rows ? offset : params.rows);
  }
  if (threadIdx.x == 0) {
    PrefetchMap(&a_map);
    PrefetchMap(&b_map);
    PrefetchMap(&d_map);
    if (kOp == GemmOp::kWgrad) PrefetchMap(&zeros_map);
    block.InitBarriers();
  }
  __syncthreads();
  ClusterSync();

  if (threadIdx.x < 128) {
    RegistersShrink<kDealerRegisters>();
    if (threadIdx.x == 0) {
      block.Produce(&a_map, &b_map, &zeros_map);
    } else if (threadIdx.x / 32 == 1) {
      block.Deal();
    }
    __syncwarp();
  } else {
    RegistersGrow<kConsumerRegisters>();
    block.Consume(&d_map);
    __syncwarp();
  }
  // A block's shared memory must outlive what its peers still write there.
  ClusterSync();
}

}  // namespace yardmaster::sm90
