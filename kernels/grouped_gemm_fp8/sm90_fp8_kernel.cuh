// File: kernels/grouped_gemm_fp8/sm90_fp8_kernel.cuh
//
// Products of block-scaled E4M3 for Hopper: D = sum over blocks of 128 of the contraction of
// (A_block B_block^T) * scale_A[row] * scale_B, one persistent launch.
//
//          D        rows        columns  contraction        A (shared)    B           scale_B
//   rows   y_RN     R, ragged   N        K                  x_RK, ragged  w_LNK       one per 128
//   columns wgrad  dw_LNK   N           K        rows of a group    dy_NP         x_KP        one
//   per column
//
// Cost       2 R N K FLOPs, and an FP32 multiply-add per 256 of them to promote (wgrad: and a
// multiplication).
//            Bound by the tensor cores, that is by power. A cluster reads 64 KB from L2 per 16.8
//            MFLOP.
// Structure  As the BF16 kernel (kernels/grouped_gemm/sm90_kernel.cuh): a warp deals the block's
// tiles into a
//            queue, one producer thread keeps kStages blocks in flight (TMA; codes of A, and the
//            scales of A, half by each block of the cluster for both). Two consumer warpgroups hold
//            2 x 64 x 128 sums each in registers, rows 64 (2 wave + group) and up, and one
//            accumulator of 64 x 128, which a wave's four multiplications start anew: while one
//            warpgroup promotes, the other multiplies.
// Stores     A tile's first wave is stored beside the last multiplication of its second wave, the
// second beside
//            the first multiplication of the next tile.
// Numerics   128 products are summed by the tensor core, which keeps about 14 bits of the sum;
// scaled and added
//            in FP32, rounded once. Every output is written (or added to) once by one block:
//            deterministic.
// Tails      Rows beyond a group's end are read as zeros and not written; a half tile of 128 rows
// without any is
//            not multiplied. Widths and contractions that are no multiples of 128 are cut by the
//            maps.
// Launch     Clusters of 2 blocks of 384 threads, one block per multiprocessor, 226 KB of shared
// memory; sm_90a. Reference  tools/bench/grouped_gemm_fp8_check.cu (double); measured:
// docs/performance.md.
#pragma once

#include "kernels/common/ptx_sm90.cuh"
#include "kernels/common/wgmma_sm90.cuh"
#include "kernels/grouped_gemm/sm90_deal.h"
#include "kernels/grouped_gemm_fp8/sm90_fp8_config.h"
#include "kernels/grouped_gemm_fp8/sm90_fp8_store.cuh"
#include "kernels/grouped_gemm_fp8/wgmma_e4m3.cuh"

namespace yardmaster::sm90fp8 {

using sm90::Shared;
using sm90::WorkItem;

enum class Op { kRows, kRowsAdd, kWgrad };

struct Params {
  const int64_t* offsets;  // [experts + 1]; null: one group of all rows
  int rows;                // R
  int columns;             // of D
  int row_extent;          // wgrad: rows of D
  int k_blocks;            // rows: of the contraction
  const float* w_scales;   // rows
  Addend addend;           // kRowsAdd
  bool accumulate;         // wgrad: add to D
  int experts;
  int group;                     // rows: of RowSchedule
  sm90::ScheduleShape schedule;  // wgrad
};

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
using Ring = RingOf<kStages>;
using QueueRing = RingOf<kQueueItems>;

struct Maps {
  CUtensorMap a, b, a_scales, b_scales, d;  // b_scales: wgrad
};

template <Op kOp>
class Block {
 public:
  static constexpr bool kWgrad = kOp == Op::kWgrad;
  static constexpr int kBoxRows = 64;  // of A's copies
  static constexpr int kBoxBytes = kBoxRows * kTileK;
  static constexpr int kBoxes = kTileRows / kBoxRows;
  using Store = WarpStore<!kWgrad, kWgrad>;

  __device__ __forceinline__ Block(const Params& params, uint8_t* shared)
      : params_(params),
        shared_(shared),
        memory_(sm90::SharedAddress(shared)),
        row_start_(reinterpret_cast<const int*>(shared + kRowStartOffset)),
        rank_(sm90::ClusterRank()) {}

  __device__ __forceinline__ Shared Full(int stage) const {
    return memory_ + kBarrierOffset + 8 * stage;
  }
  __device__ __forceinline__ Shared Empty(int stage) const { return Full(kStages + stage); }
  __device__ __forceinline__ Shared QueueFull(int slot) const { return Full(2 * kStages + slot); }
  __device__ __forceinline__ Shared QueueEmpty(int slot) const {
    return Full(2 * kStages + kQueueItems + slot);
  }
  __device__ __forceinline__ Shared A(int stage) const { return memory_ + stage * kStageBytes; }
  __device__ __forceinline__ Shared B(int stage) const { return A(stage) + kABytes; }
  __device__ __forceinline__ Shared AScales(int stage) const {
    return memory_ + kScaleOffset + stage * kScaleBytes;
  }
  __device__ __forceinline__ Shared BScales(int stage) const {
    return AScales(stage) + kRowScaleBytes;
  }

  __device__ __forceinline__ void InitBarriers() const {
    for (int s = 0; s < kStages; ++s) {
      sm90::BarrierInit(Full(s), 1);
      sm90::BarrierInit(Empty(s), kConsumerWarps * kCluster);
    }
    for (int s = 0; s < kQueueItems; ++s) {
      sm90::BarrierInit(QueueFull(s), 1);
      sm90::BarrierInit(QueueEmpty(s), kConsumerWarps + 1);
    }
    sm90::FenceBarrierInit();
  }

  // ---- dealer: one warp
  // -----------------------------------------------------------------------------------

  // Queues the cluster's items in the order in which they are computed; both blocks the same.
  __device__ __forceinline__ void Deal() {
    const int clusters = gridDim.x / kCluster, own = blockIdx.x / kCluster;
    QueueRing ring;
    WorkItem item;
    if constexpr (kWgrad) {
      sm90::RunList<sm90::WarpLanes> runs(params_.schedule, row_start_, clusters);
      sm90::Dealer<sm90::WarpLanes> dealer(clusters, own);
      sm90::ExpertItems items(params_.schedule);
      for (sm90::Run run; runs.Next(&run);) {
        if (run.expert != items.expert()) items.Load(row_start_, run.expert);
        const int count = dealer.Deal(run.count, run.cost);
        for (int j = 0; j < count; ++j) Push(&ring, items.Item(run.first + dealer.Index(j)));
      }
    } else {
      const int column_groups = (params_.columns + kClusterColumns - 1) / kClusterColumns;
      RowSchedule schedule(params_.experts, column_groups, params_.group, row_start_);
      for (int index = own; schedule.Find(index, &item); index += clusters) Push(&ring, item);
    }
    item.expert = -1;
    Push(&ring, item);
  }

  __device__ __forceinline__ void Push(QueueRing* ring, const WorkItem& item) const {
    sm90::BarrierWait(QueueEmpty(ring->stage), ring->parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      *QueueSlot(ring->stage) = item;
      sm90::BarrierArrive(QueueFull(ring->stage));
    }
    __syncwarp();
    ring->Advance();
  }

  __device__ __forceinline__ WorkItem* QueueSlot(int slot) const {
    return reinterpret_cast<WorkItem*>(shared_ + kQueueOffset + slot * kQueueItemBytes);
  }

  __device__ __forceinline__ int KBlocks(const WorkItem& item) const {
    return kWgrad ? (item.row_end - item.row_begin) / kTileK : params_.k_blocks;
  }

  // ---- producer: one thread
  // -------------------------------------------------------------------------------

  __device__ __forceinline__ void Produce(const Maps& maps) {
    constexpr uint16_t kAll = (1 << kCluster) - 1;
    Ring ring;
    QueueRing queue;
    for (;;) {
      sm90::BarrierWait(QueueFull(queue.stage), queue.parity);
      const WorkItem item = *QueueSlot(queue.stage);
      sm90::BarrierArrive(QueueEmpty(queue.stage));
      queue.Advance();
      if (item.expert < 0) return;
      const int k_blocks = KBlocks(item);
      const int column = (item.m_group * kCluster + rank_) * kTileColumns;
      const int boxes = (item.n_size + kBoxRows - 1) / kBoxRows;
      const int scale_copies = (item.n_size + kTileColumns - 1) / kTileColumns;
      const int bytes = boxes * kBoxBytes + kBBytes + scale_copies * kRowScaleBox * 4 +
                        (kWgrad ? kTileColumns * 4 : 0);
      for (int kb = 0; kb < k_blocks; ++kb) {
        const Shared full = Full(ring.stage);
        sm90::BarrierWait(Empty(ring.stage), ring.parity ^ 1);
        sm90::BarrierExpectBytes(full, bytes);
        const int k = (kWgrad ? item.row_begin : 0) + kb * kTileK;
#pragma unroll
        for (int i = 0; i < kBoxes / kCluster; ++i) {
          const int box = rank_ * (kBoxes / kCluster) + i;
          if (box >= boxes) break;
          const int row = item.n_begin + kBoxRows * box,
                    valid = min(kBoxRows, item.n_size - kBoxRows * box);
          const Shared to = A(ring.stage) + box * kBoxBytes;
          sm90::TmaLoadMulticast(to, &maps.a, full, kAll, k, kWgrad ? row : kBoxRows - valid,
                                 kWgrad ? 0 : row + valid);
        }
        if (static_cast<int>(rank_) < scale_copies) {
          sm90::TmaLoadMulticast(AScales(ring.stage) + rank_ * kTileColumns * 4, &maps.a_scales,
                                 full, kAll, (item.n_begin & ~3) + rank_ * kTileColumns, k / kTileK,
                                 0);
        }
        sm90::TmaLoad(B(ring.stage), &maps.b, full, k, column, kWgrad ? 0 : item.expert);
        if constexpr (kWgrad)
          sm90::TmaLoad(BScales(ring.stage), &maps.b_scales, full, column, k / kTileK, 0);
        ring.Advance();
      }
    }
  }

  // ---- consumers: two warpgroups
  // --------------------------------------------------------------------------

  // What a warp carries from tile to tile. The second wave of the tile before is stored beside the
  // first multiplications of the next: `pending` says where to.
  struct State {
    Ring ring;
    Place pending;
    float sum0[64], sum1[64];
  };

  __device__ __forceinline__ void Consume(const Maps& maps) {
    const int warp = Uniform(threadIdx.x / 32) - 4, group = warp / 4;
    Store store(&maps.d, memory_ + kStoreOffset + warp * kStoreChunks * kChunkBytes,
                params_.columns, params_.accumulate);
    State state;
#pragma unroll
    for (int i = 0; i < 64; ++i) state.sum1[i] = 0;
    QueueRing queue;
    WorkItem item;
    while (PopUniform(&queue, &item)) {
      const int k_blocks = KBlocks(item);
      if constexpr (kWgrad) {
        if (k_blocks == 0) {
          StorePending(&store, &state);
#pragma unroll
          for (int i = 0; i < 64; ++i) state.sum1[i] = 0;
          for (int wave = 0; wave < 2; ++wave) store.Write(WavePlace(item, warp, wave), state.sum1);
          continue;
        }
      }
      if (item.n_size > 64 * (2 + group)) {
        Tile<2>(&store, warp, k_blocks, item, &state);
      } else if (item.n_size > 64 * group) {
        Tile<1>(&store, warp, k_blocks, item, &state);
      } else {
        for (int kb = 0; kb < k_blocks; ++kb) {
          sm90::BarrierWait(Full(state.ring.stage), state.ring.parity);
          Release(state.ring.stage);
          state.ring.Advance();
        }
      }
    }
    StorePending(&store, &state);
    store.Finish();
  }

  __device__ __forceinline__ Place WavePlace(const WorkItem& item, int warp, int wave) const {
    const int row = 64 * (2 * wave + warp / 4) + 16 * (warp % 4);
    Place place;
    place.row = item.n_begin + row;
    place.rows = max(0, min(16, item.n_size - row));
    place.column = (item.m_group * kCluster + static_cast<int>(rank_)) * kTileColumns;
    place.expert = item.expert;
    return place;
  }

  __device__ __forceinline__ void StoreWave(Store* store, const Place& place,
                                            float (&sum)[64]) const {
    if constexpr (kOp == Op::kRowsAdd) store->Add(place, params_.addend, sum);
    store->Write(place, sum);
  }

  __device__ __forceinline__ void StorePending(Store* store, State* state) const {
    StoreWave(store, state->pending, state->sum1);
    state->pending.rows = 0;
  }

  // `kWaves` of 64 rows are this warpgroup's.
  template <int kWaves>
  __device__ __forceinline__ void Tile(Store* store, int warp, int k_blocks, const WorkItem& item,
                                       State* state) const {
    const float* w_scale = WeightScales(item);
    float scale = kWgrad ? 0 : *w_scale;
    if (k_blocks == 1) {
      MultiplyBlock<kWaves, true, true>(store, warp, item, scale, state);
    } else {
      float next = kWgrad ? 0 : w_scale[1];
      MultiplyBlock<kWaves, true, false>(store, warp, item, scale, state);
#pragma unroll 1
      for (int kb = 1; kb < k_blocks - 1; ++kb) {
        scale = next;
        if constexpr (!kWgrad) next = w_scale[kb + 1];  // a block ahead
        MultiplyBlock<kWaves, false, false>(store, warp, item, scale, state);
      }
      MultiplyBlock<kWaves, false, true>(store, warp, item, next, state);
    }
    if constexpr (kWaves == 1) {
      StoreWave(store, WavePlace(item, warp, 0), state->sum0);
    } else {
      state->pending = WavePlace(item, warp, 1);
    }
  }

  __device__ __forceinline__ const float* WeightScales(const WorkItem& item) const {
    const int tiles = (params_.columns + kTileColumns - 1) / kTileColumns;
    const int tile = min(item.m_group * kCluster + static_cast<int>(rank_), tiles - 1);
    return params_.w_scales + (static_cast<int64_t>(item.expert) * tiles + tile) * params_.k_blocks;
  }

  template <int kWaves, bool kFirst, bool kLast>
  __device__ __forceinline__ void MultiplyBlock(Store* store, int warp, const WorkItem& item,
                                                float scale, State* state) const {
    const int stage = state->ring.stage, group = warp / 4;
    sm90::BarrierWait(Full(stage), state->ring.parity);
    float a_scales[2][2];
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave) {
      const Shared from = AScales(stage) + 4 * ((item.n_begin & 3) + 64 * (2 * wave + group) +
                                                16 * (warp % 4) + threadIdx.x % 32 / 4);
      a_scales[wave][0] = LoadShared(from) * (kWgrad ? 1 : scale);
      a_scales[wave][1] = LoadShared(from + 4 * 8) * (kWgrad ? 1 : scale);
    }
    float product[64];
    Multiply(stage, group, product);
    if constexpr (kFirst) StorePending(store, state);
    sm90::WgmmaWait<0>();
    HoldAccumulators(product);
    if constexpr (kWaves == 1 && !kWgrad) Release(stage);
    Promote<kFirst>(stage, a_scales[0], product, state->sum0);
    if constexpr (kWaves == 2) {
      Multiply(stage, 2 + group, product);
      if constexpr (kLast) StoreWave(store, WavePlace(item, warp, 0), state->sum0);
      sm90::WgmmaWait<0>();
      HoldAccumulators(product);
      if constexpr (!kWgrad) Release(stage);
      Promote<kFirst>(stage, a_scales[1], product, state->sum1);
    }
    if constexpr (kWgrad) Release(stage);  // the columns' scales have been read, too
    state->ring.Advance();
  }

  // Rows 64 part .. of A, all of the block of the contraction.
  __device__ __forceinline__ void Multiply(int stage, int part, float (&product)[64]) const {
    const uint64_t a = sm90::MatrixDescriptor<true>(A(stage) + part * kBoxBytes, 0);
    const uint64_t b = sm90::MatrixDescriptor<true>(B(stage), 0);
    sm90::WgmmaFence();
    WgmmaE4m3<false>(product, a, b);
#pragma unroll
    for (int step = 1; step < kTileK / 32; ++step) {
      WgmmaE4m3<true>(product, a + step * kDescriptorStepK32, b + step * kDescriptorStepK32);
    }
    sm90::WgmmaCommit();
  }

  template <bool kFirst>
  __device__ __forceinline__ void Promote(int stage, const float (&a_scales)[2],
                                          const float (&product)[64], float (&sum)[64]) const {
    const Shared from = BScales(stage) + 8 * (threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float b_scales[2] = {1, 1};
      if constexpr (kWgrad) LoadShared2(from + 32 * j, b_scales);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float scale = kWgrad ? a_scales[i / 2] * b_scales[i % 2] : a_scales[i / 2];
        sum[4 * j + i] =
            kFirst ? scale * product[4 * j + i] : fmaf(scale, product[4 * j + i], sum[4 * j + i]);
      }
    }
  }

  __device__ __forceinline__ static float LoadShared(Shared from) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from));
    return v;
  }
  __device__ __forceinline__ static void LoadShared2(Shared from, float (&v)[2]) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "r"(from));
  }

  // The shuffles tell the compiler that a value is the same in all threads of a warp.
  __device__ __forceinline__ static int Uniform(int value) { return __shfl_sync(~0u, value, 0); }

  // False at the end of the queue.
  __device__ __forceinline__ bool PopUniform(QueueRing* ring, WorkItem* item) const {
    sm90::BarrierWait(QueueFull(ring->stage), ring->parity);
    const WorkItem* slot = QueueSlot(ring->stage);
    item->expert = Uniform(slot->expert);
    item->row_begin = Uniform(slot->row_begin);
    item->row_end = Uniform(slot->row_end);
    item->m_group = Uniform(slot->m_group);
    item->n_begin = Uniform(slot->n_begin);
    item->n_size = Uniform(slot->n_size);
    if (threadIdx.x % 32 == 0) sm90::BarrierArrive(QueueEmpty(ring->stage));
    __syncwarp();
    ring->Advance();
    return item->expert >= 0;
  }

  // Every warp signals the producers of all blocks, since all write to this block's stages.
  __device__ __forceinline__ void Release(int stage) const {
    const uint32_t lane = threadIdx.x % 32;
    if (lane < kCluster) sm90::BarrierArriveCluster(Empty(stage), lane);
  }

 private:
  const Params& params_;
  uint8_t* const shared_;
  const Shared memory_;
  const int* const row_start_;
  const uint32_t rank_;
};

// Where groups begin, from the offsets: in `rows` as they are, in wgrad each rounded up to 128
// rows. One warp.
template <bool kAligned>
__device__ __forceinline__ void LoadRowStarts(const Params& params, int* row_start) {
  const int lane = threadIdx.x;
  const auto offset = [&](int i) {
    if (params.offsets == nullptr) return i == 0 ? 0 : params.rows;
    const int64_t at = params.offsets[i];
    return static_cast<int>(at < 0 ? 0 : at < params.rows ? at : params.rows);
  };
  if constexpr (!kAligned) {
    for (int i = lane; i <= params.experts; i += 32) row_start[i] = offset(i);
  } else {
    int before = 0;
    if (lane == 0) row_start[0] = 0;
    for (int first = 0; first < params.experts; first += 32) {
      const int i = first + lane;
      const int rows = i < params.experts ? offset(i + 1) - offset(i) : 0;
      int end = (rows + kTileK - 1) / kTileK * kTileK;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(~0u, end, step);
        if (lane >= step) end += other;
      }
      end += before;
      if (i < params.experts) row_start[i + 1] = end;
      before = __shfl_sync(~0u, end, 31);
    }
  }
}

template <Op kOp>
__global__ void __launch_bounds__(kThreads, 1)
    GroupedGemmFp8Kernel(const __grid_constant__ Maps maps, const __grid_constant__ Params params) {
  extern __shared__ __align__(1024) uint8_t shared[];
  Block<kOp> block(params, shared);

  if (threadIdx.x < 32) {
    LoadRowStarts<kOp == Op::kWgrad>(params, reinterpret_cast<int*>(shared + kRowStartOffset));
  } else if (threadIdx.x == 32) {
    sm90::PrefetchMap(&maps.a);
    sm90::PrefetchMap(&maps.b);
    sm90::PrefetchMap(&maps.a_scales);
    if (kOp == Op::kWgrad) sm90::PrefetchMap(&maps.b_scales);
    sm90::PrefetchMap(&maps.d);
    block.InitBarriers();
  }
  __syncthreads();
  sm90::ClusterSync();

  if (threadIdx.x < 128) {
    sm90::RegistersShrink<sm90::kDealerRegisters>();
    if (threadIdx.x == 0) {
      block.Produce(maps);
    } else if (threadIdx.x / 32 == 1) {
      block.Deal();
    }
    __syncwarp();
  } else {
    sm90::RegistersGrow<sm90::kConsumerRegisters>();
    block.Consume(maps);
    __syncwarp();
  }
  // A block's shared memory must outlive what its peers still write there.
  sm90::ClusterSync();
}

}  // namespace yardmaster::sm90fp8
