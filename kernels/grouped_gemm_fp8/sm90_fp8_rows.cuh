// File: kernels/grouped_gemm_fp8/sm90_fp8_rows.cuh
//
// Products of block-scaled E4M3 over ragged rows for Hopper, one persistent launch:
//   y_RN = sum over blocks of 128 of K of (x_block w_block^T) * scale_x[row] * scale_w[128 columns]
//
// Cost       2 R N K FLOPs, and an FP32 multiply-add per 256 of them to promote. Bound by the
//            tensor cores, that is by power. A cluster reads 64 KB from L2 per 16.8 MFLOP.
// Structure  As the BF16 kernel (kernels/grouped_gemm/sm90_kernel.cuh): a warp deals the block's
//            tiles of 256 x 128 into a queue, one producer thread keeps kRowsStages blocks in
//            flight (TMA; codes of x and their scales, half by each block of the cluster for both).
//            Two consumer warpgroups hold 2 x 64 x 128 sums each in registers, rows 64 (2 wave +
//            group) on, and one accumulator of 64 x 128, which a wave's four multiplications start
//            anew: while one warpgroup promotes, the other multiplies. The next block is awaited
//            and its scales are loaded beside the multiplication of the last wave.
// Stores     A tile's first wave is stored beside the last multiplication of its second wave, the
//            second beside the first multiplication of the next tile.
// Numerics   128 products are summed by the tensor core, which keeps about 14 bits of the sum;
//            scaled and added in FP32, rounded once. Every output is written once, by one block:
//            deterministic.
// Tails      Rows beyond a group's end are read as zeros and not written; 128 rows without any are
//            not multiplied. Widths that are no multiples of 128 are cut by the maps.
// Launch     Clusters of 2 blocks of 384 threads, one block per multiprocessor, 215 KB of shared
//            memory; sm_90a.
// Reference  tools/bench/grouped_gemm_fp8_check.cu (double); measured: docs/performance.md.
#pragma once

#include "kernels/grouped_gemm_fp8/sm90_fp8_pipeline.cuh"
#include "kernels/grouped_gemm_fp8/sm90_fp8_store.cuh"

namespace yardmaster::sm90fp8 {

struct RowsParams {
  Offsets offsets;
  int columns;            // N
  int k_blocks;           // of the contraction
  const float* w_scales;  // [groups, column tiles, k_blocks]
  Bf16Matrix y, c;        // c: with an addend
  int group;              // of RowSchedule
};

struct RowsMaps {
  CUtensorMap x, w, x_scales;
};

// Shared memory.
inline constexpr int kRowsWarpgroups = 2;
inline constexpr int kRowsStages = 4;  // blocks of the contraction in flight
inline constexpr int kRowsXBytes = kTileRows * kTileK;
inline constexpr int kRowsStageBytes = kRowsXBytes + kTileColumns * kTileK;
// Scales of rows are copied from a multiple of 4 on (a copy that begins between is an illegal
// instruction on the H200), for 128 rows and 4 more at a time.
inline constexpr int kRowScaleBox = kTileColumns + 4;
inline constexpr int kRowScaleBytes = 1152;  // 2 x 128 + 4 scales, to a multiple of 128
static_assert((2 * kTileColumns + 4) * 4 <= kRowScaleBytes);
inline constexpr int kRowsScaleOffset = kRowsStages * kRowsStageBytes;
inline constexpr int kRowsStoreOffset = kRowsScaleOffset + kRowsStages * kRowScaleBytes;
inline constexpr int kRowsPipelineOffset = kRowsStoreOffset + 4 * kRowsWarpgroups * RowStore::kBytes;

template <bool kAddend>
class RowsBlock : public PipelineBlock<kRowsPipelineOffset, kRowsStages, kRowsWarpgroups> {
 public:
  static constexpr int kBoxRows = 64;  // of a copy of x
  static constexpr int kBoxBytes = kBoxRows * kTileK;
  static constexpr int kBoxes = kTileRows / kBoxRows;

  __device__ __forceinline__ RowsBlock(const RowsParams& params, uint8_t* shared)
      : PipelineBlock(shared), params_(params) {}

  __device__ __forceinline__ static void Prefetch(const RowsMaps& maps) {
    sm90::PrefetchMap(&maps.x);
    sm90::PrefetchMap(&maps.w);
    sm90::PrefetchMap(&maps.x_scales);
  }

  __device__ __forceinline__ void FindGroups() const { params_.offsets.Load(row_start_); }

  // One warp: queues the cluster's items in the order in which they are computed; both blocks the
  // same.
  __device__ __forceinline__ void Deal() const {
    const int clusters = gridDim.x / kCluster, own = blockIdx.x / kCluster;
    const int column_groups = (params_.columns + kClusterColumns - 1) / kClusterColumns;
    Queue::Ring ring;
    WorkItem item;
    RowSchedule schedule(params_.offsets.groups, column_groups, params_.group, clusters,
                         row_start_);
    for (int index = own; schedule.Find(index, &item); index += clusters) {
      if (item.n_size > 0) queue_.Push(&ring, item);
    }
    item.expert = -1;
    queue_.Push(&ring, item);
  }

  // One thread.
  __device__ __forceinline__ void Produce(const RowsMaps& maps) const {
    constexpr uint16_t kAll = (1 << kCluster) - 1;
    Ring ring;
    Queue::Ring queue_ring;
    for (WorkItem item; queue_.Pop(&queue_ring, &item);) {
      const int column = Column(item);
      const int boxes = (item.n_size + kBoxRows - 1) / kBoxRows;
      const int scale_copies = (item.n_size + kTileColumns - 1) / kTileColumns;
      const int bytes = boxes * kBoxBytes + kTileColumns * kTileK + scale_copies * kRowScaleBox * 4;
      for (int kb = 0; kb < params_.k_blocks; ++kb) {
        const Shared full = stages_.Full(ring.stage);
        sm90::BarrierWait(stages_.Empty(ring.stage), ring.parity ^ 1);
        sm90::BarrierExpectBytes(full, bytes);
        const int k = kb * kTileK;
#pragma unroll
        for (int i = 0; i < kBoxes / kCluster; ++i) {
          const int box = rank_ * (kBoxes / kCluster) + i;
          if (box >= boxes) break;
          const int row = item.n_begin + kBoxRows * box;
          const int valid = min(kBoxRows, item.n_size - kBoxRows * box);
          sm90::TmaLoadMulticast(X(ring.stage) + box * kBoxBytes, &maps.x, full, kAll, k,
                                 kBoxRows - valid, row + valid);
        }
        if (rank_ < scale_copies) {
          sm90::TmaLoadMulticast(XScales(ring.stage) + rank_ * kTileColumns * 4, &maps.x_scales,
                                 full, kAll, (item.n_begin & ~3) + rank_ * kTileColumns, kb, 0);
        }
        sm90::TmaLoad(W(ring.stage), &maps.w, full, k, column, item.expert);
        ring.Advance();
      }
    }
  }

  // Two warpgroups.
  __device__ __forceinline__ void Consume(const RowsMaps& /*maps*/) const {
    const int warp = Uniform(threadIdx.x / 32) - 4, group = warp / 4;
    const RowStore store(params_.y, params_.c, params_.columns,
                         memory_ + kRowsStoreOffset + warp * RowStore::kBytes);
    State state;
#pragma unroll
    for (int i = 0; i < 64; ++i) state.sum1[i] = 0;
    Queue::Ring queue_ring;
    for (WorkItem item; queue_.PopUniform(&queue_ring, &item);) {
      if (item.n_size > 64 * (2 + group)) {
        Tile<2>(store, warp, item, &state);
      } else if (item.n_size > 64 * group) {
        Tile<1>(store, warp, item, &state);
      } else {
        for (int kb = 0; kb < params_.k_blocks; ++kb) {
          sm90::BarrierWait(stages_.Full(state.ring.stage), state.ring.parity);
          stages_.Release(state.ring.stage);
          state.ring.Advance();
        }
      }
    }
    StorePending(store, &state);
  }

 private:
  // What a warp carries from tile to tile. The second wave of the tile before is stored beside the
  // first multiplication of the next: `pending` says where to.
  struct State {
    Ring ring;
    Place pending;
    float sum0[64], sum1[64];
  };

  // Of a block: of this thread's rows (lane / 4 and that + 8 of a wave's 16), and of the weights.
  struct Scales {
    float x[2][2];
    float w;
  };

  __device__ __forceinline__ Shared X(int stage) const { return memory_ + stage * kRowsStageBytes; }
  __device__ __forceinline__ Shared W(int stage) const { return X(stage) + kRowsXBytes; }
  __device__ __forceinline__ Shared XScales(int stage) const {
    return memory_ + kRowsScaleOffset + stage * kRowScaleBytes;
  }
  __device__ __forceinline__ int Column(const WorkItem& item) const {
    return (item.m_group * kCluster + rank_) * kTileColumns;
  }

  __device__ __forceinline__ Place WavePlace(const WorkItem& item, int warp, int wave) const {
    const int row = 64 * (2 * wave + warp / 4) + 16 * (warp % 4);
    Place place;
    place.row = item.n_begin + row;
    place.rows = max(0, min(16, item.n_size - row));
    place.column = Column(item);
    return place;
  }

  __device__ __forceinline__ void StoreWave(const RowStore& store, const Place& place,
                                            float (&sum)[64]) const {
    if constexpr (kAddend) store.Add(place, sum);
    store.Write(place, sum);
  }

  __device__ __forceinline__ void StorePending(const RowStore& store, State* state) const {
    StoreWave(store, state->pending, state->sum1);
    state->pending.rows = 0;
  }

  __device__ __forceinline__ const float* WeightScales(const WorkItem& item) const {
    const int tiles = (params_.columns + kTileColumns - 1) / kTileColumns;
    const int tile = min(item.m_group * kCluster + rank_, tiles - 1);
    return params_.w_scales + (static_cast<int64_t>(item.expert) * tiles + tile) * params_.k_blocks;
  }

  template <int kWaves>
  __device__ __forceinline__ void LoadScales(const WorkItem& item, int warp, int stage,
                                             Scales* scales) const {
    const int row = (item.n_begin & 3) + 64 * (warp / 4) + 16 * (warp % 4) + threadIdx.x % 32 / 4;
    const Shared from = XScales(stage) + 4 * row;
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave) {
      scales->x[wave][0] = LoadShared(from + 4 * 128 * wave);
      scales->x[wave][1] = LoadShared(from + 4 * (128 * wave + 8));
    }
  }

  // `kWaves` of 64 rows are this warpgroup's.
  template <int kWaves>
  __device__ __forceinline__ void Tile(const RowStore& store, int warp, const WorkItem& item,
                                       State* state) const {
    const int k_blocks = params_.k_blocks;
    const float* w_scale = WeightScales(item);
    Scales scales;
    scales.w = *w_scale;
    sm90::BarrierWait(stages_.Full(state->ring.stage), state->ring.parity);
    LoadScales<kWaves>(item, warp, state->ring.stage, &scales);
    if (k_blocks == 1) {
      MultiplyBlock<kWaves, true, true>(store, warp, item, w_scale, &scales, state);
    } else {
      MultiplyBlock<kWaves, true, false>(store, warp, item, ++w_scale, &scales, state);
#pragma unroll 1
      for (int kb = 1; kb < k_blocks - 1; ++kb)
        MultiplyBlock<kWaves, false, false>(store, warp, item, ++w_scale, &scales, state);
      MultiplyBlock<kWaves, false, true>(store, warp, item, w_scale, &scales, state);
    }
    if constexpr (kWaves == 1) {
      StoreWave(store, WavePlace(item, warp, 0), state->sum0);
    } else {
      state->pending = WavePlace(item, warp, 1);
    }
  }

  // A block of the contraction that has arrived and whose scales are loaded. While it is
  // multiplied, the next is awaited and its scales are loaded, so that little lies between the end
  // of a promotion and the next multiplication. `next_w_scale`: of the next block.
  template <int kWaves, bool kFirst, bool kLast>
  __device__ __forceinline__ void MultiplyBlock(const RowStore& store, int warp,
                                                const WorkItem& item, const float* next_w_scale,
                                                Scales* scales, State* state) const {
    const int stage = state->ring.stage, group = warp / 4;
    state->ring.Advance();
    const auto await_next = [&] {
      if constexpr (!kLast) {
        sm90::BarrierWait(stages_.Full(state->ring.stage), state->ring.parity);
        LoadScales<kWaves>(item, warp, state->ring.stage, scales);
      }
    };
    float next_w = 0;
    if constexpr (!kLast) next_w = *next_w_scale;
    float product[64], scale[2][2];
    Multiply(X(stage) + group * kBoxBytes, W(stage), product);
#pragma unroll
    for (int i = 0; i < 2 * kWaves; ++i) scale[i / 2][i % 2] = scales->x[i / 2][i % 2] * scales->w;
    scales->w = next_w;
    if constexpr (kFirst) StorePending(store, state);
    if constexpr (kWaves == 1) await_next();
    FinishMultiply(product);
    if constexpr (kWaves == 1) stages_.Release(stage);
    Promote<kFirst>(scale[0], product, state->sum0);
    if constexpr (kWaves == 2) {
      Multiply(X(stage) + (2 + group) * kBoxBytes, W(stage), product);
      if constexpr (kLast) StoreWave(store, WavePlace(item, warp, 0), state->sum0);
      await_next();
      FinishMultiply(product);
      stages_.Release(stage);
      Promote<kFirst>(scale[1], product, state->sum1);
    }
  }

  // sum (+)= scale[row] * product.
  template <bool kFirst>
  __device__ __forceinline__ static void Promote(const float (&scale)[2],
                                                 const float (&product)[64], float (&sum)[64]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const float s = scale[i % 4 / 2];
      sum[i] = kFirst ? s * product[i] : fmaf(s, product[i], sum[i]);
    }
  }

  const RowsParams& params_;
};

template <bool kAddend>
__global__ void __launch_bounds__(kThreads<kRowsWarpgroups>, 1)
    RowsKernel(const __grid_constant__ RowsMaps maps, const __grid_constant__ RowsParams params) {
  extern __shared__ __align__(1024) uint8_t shared[];
  RunBlock(RowsBlock<kAddend>(params, shared), maps);
}

}  // namespace yardmaster::sm90fp8
