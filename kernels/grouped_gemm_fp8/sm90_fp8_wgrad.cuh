// File: kernels/grouped_gemm_fp8/sm90_fp8_wgrad.cuh
//
// Weight gradients of block-scaled E4M3 for Hopper, one persistent launch; P: the aligned row space
//   dw_LNK[l] = sum over blocks of 128 of the group's rows of (dy_NP x_KP^T) * s_dy[n] * s_x[k]
//
// Cost       2 R N K FLOPs. To promote 256 of them takes an FP32 multiplication (of the two scales)
//            and a multiply-add, which bounds it: both take registers' ports from the tensor core.
//            Then the stores (beta 1: reductions) of 4 bytes for each weight.
// Structure  As the kernel of rows (sm90_fp8_rows.cuh), but one wave of 64 x 128 for each
//            warpgroup. Tiles are dealt by cost (kernels/grouped_gemm/sm90_deal.h). Two forms, the
//            host's choice (WgradWarpgroups):
//              two warpgroups    tiles of 128 x 128; the products of the scales are made while the
//                                block is multiplied, in registers of their own. An item is 256
//                                rows by the 256 columns of a cluster, taken as two halves.
//              three warpgroups  tiles of 192 x 128, an item each; a warpgroup promotes while the
//                                two others multiply. One without rows in the last tile stands by.
// Stores     Beside the first multiplication of the next tile as many chunks as a warp has buffers, the
//            others right before its promotion changes their sums. With beta 0 also the sums of the
//            squares of what is stored, if wanted.
// Numerics   As the kernel of rows; FP32, written (or added to) once by one block: deterministic.
// Tails      Pad rows of a group are zeros in the operands. Other edges are cut by the maps.
// Launch     Clusters of 2 blocks of 384 or 512 threads, one block per multiprocessor, 210 to 215
//            KB of shared memory; sm_90a.
// Reference  tools/bench/grouped_gemm_fp8_check.cu (double); measured: docs/performance.md.
#pragma once

#include "kernels/grouped_gemm/sm90_deal.h"
#include "kernels/grouped_gemm_fp8/sm90_fp8_pipeline.cuh"
#include "kernels/grouped_gemm_fp8/sm90_fp8_store.cuh"

namespace yardmaster::sm90fp8 {

struct WgradParams {
  Offsets offsets;
  int columns;                   // K
  bool accumulate;               // add to dw
  sm90::ScheduleShape schedule;  // its N are our rows, its M our columns
  sm90::SquaresOut squares;      // kSquares
};

struct WgradMaps {
  CUtensorMap dy, x, dy_scales, x_scales, dw;
};

// Shared memory of a block with kGroups consumer warpgroups.
template <int kGroups, bool kSquares>
struct WgradLayout {
  static constexpr int kStages = kGroups == 2 ? 5 : 4;
  static constexpr int kRows = 64 * kGroups;  // of a tile
  static constexpr int kItemRows = kGroups == 2 ? kTileRows : kRows;
  using Store = GradientStore<kGroups == 2 ? 3 : 2, kSquares>;
  static constexpr int kDyBytes = kRows * kTileK;
  static constexpr int kStageBytes = kDyBytes + kTileColumns * kTileK;
  static constexpr int kScaleOffset = kStages * kStageBytes;
  static constexpr int kScaleBytes = (kRows + kTileColumns) * 4;
  static constexpr int kStoreOffset = kScaleOffset + kStages * kScaleBytes;
  static constexpr int kPipelineOffset = kStoreOffset + 4 * kGroups * Store::kBytes;
  static_assert(kStoreOffset % 1024 == 0 && kScaleBytes % 128 == 0);
};

template <int kGroups, bool kSquares>
class WgradBlock : public PipelineBlock<WgradLayout<kGroups, kSquares>::kPipelineOffset,
                                        WgradLayout<kGroups, kSquares>::kStages, kGroups> {
  using Layout = WgradLayout<kGroups, kSquares>;
  using Base = PipelineBlock<Layout::kPipelineOffset, Layout::kStages, kGroups>;
  using Ring = typename Base::Ring;
  using Queue = typename Base::Queue;
  using Store = typename Layout::Store;
  using Base::memory_;
  using Base::queue_;
  using Base::rank_;
  using Base::row_start_;
  using Base::stages_;

 public:
  static constexpr int kBoxRows = Layout::kRows / kCluster;  // of a copy of dy and of its scales

  __device__ __forceinline__ WgradBlock(const WgradParams& params, uint8_t* shared)
      : Base(shared), params_(params) {}

  __device__ __forceinline__ static void Prefetch(const WgradMaps& maps) {
    sm90::PrefetchMap(&maps.dy);
    sm90::PrefetchMap(&maps.x);
    sm90::PrefetchMap(&maps.dy_scales);
    sm90::PrefetchMap(&maps.x_scales);
    sm90::PrefetchMap(&maps.dw);
  }

  __device__ __forceinline__ void FindGroups() const { params_.offsets.LoadAligned(row_start_); }

  // One warp: queues the cluster's items in the order in which they are computed; both blocks the
  // same.
  __device__ __forceinline__ void Deal() const {
    const int clusters = gridDim.x / kCluster, own = blockIdx.x / kCluster;
    typename Queue::Ring ring;
    sm90::RunList<sm90::WarpLanes, Layout::kItemRows> runs(params_.schedule, row_start_, clusters);
    sm90::Dealer<sm90::WarpLanes> dealer(clusters, own);
    sm90::ExpertItemsOf<Layout::kItemRows> items(params_.schedule);
    for (sm90::Run run; runs.Next(&run);) {
      if (run.expert != items.expert()) items.Load(row_start_, run.expert);
      const int count = dealer.Deal(run.count, run.cost);
      for (int j = 0; j < count; ++j) queue_.Push(&ring, items.Item(run.first + dealer.Index(j)));
    }
    WorkItem end;
    end.expert = -1;
    queue_.Push(&ring, end);
  }

  // One thread.
  __device__ __forceinline__ void Produce(const WgradMaps& maps) const {
    constexpr uint16_t kAll = (1 << kCluster) - 1;
    constexpr int kBytes = Layout::kStageBytes + Layout::kScaleBytes;
    Ring ring;
    typename Queue::Ring queue_ring;
    for (WorkItem item; queue_.Pop(&queue_ring, &item);) {
      for (int half = 0; half < Halves(item); ++half) {
        const int row = item.n_begin + half * Layout::kRows + rank_ * kBoxRows;
        for (int k = item.row_begin; k < item.row_end; k += kTileK) {
          const int stage = ring.stage;
          const Shared full = stages_.Full(stage);
          sm90::BarrierWait(stages_.Empty(stage), ring.parity ^ 1);
          sm90::BarrierExpectBytes(full, kBytes);
          sm90::TmaLoadMulticast(Dy(stage) + rank_ * kBoxRows * kTileK, &maps.dy, full, kAll, k,
                                 row, 0);
          sm90::TmaLoadMulticast(DyScales(stage) + rank_ * kBoxRows * 4, &maps.dy_scales, full,
                                 kAll, row, k / kTileK, 0);
          sm90::TmaLoad(X(stage), &maps.x, full, k, Column(item), 0);
          sm90::TmaLoad(XScales(stage), &maps.x_scales, full, Column(item), k / kTileK, 0);
          ring.Advance();
        }
      }
    }
  }

  // kGroups warpgroups.
  __device__ __forceinline__ void Consume(const WgradMaps& maps) const {
    const int warp = Uniform(threadIdx.x / 32) - 4;
    Store store(&maps.dw, params_.columns, params_.accumulate, params_.squares,
                memory_ + Layout::kStoreOffset + warp * Store::kBytes);
    State state;
#pragma unroll
    for (int i = 0; i < 64; ++i) state.sum[i] = 0;
    PopNext(&state);
    while (state.more) {
      const WorkItem item = state.next;
      const int halves = Halves(item);
      for (int half = 0; half < halves; ++half) {
        const bool last = half == halves - 1;
        if (Multiplies(item, warp)) {
          Tile(&store, warp, item, last, &state);
        } else {
          StorePending(&store, &state);
          if (item.row_begin < item.row_end) {
            StandBy(item, &state);
          } else {
#pragma unroll
            for (int i = 0; i < 64; ++i) state.sum[i] = 0;
          }
          if (last) PopNext(&state);
        }
        state.pending = TilePlace(item, warp, half);
      }
    }
    StorePending(&store, &state);
    store.Finish();
  }

 private:
  // What a warp carries from tile to tile: the sums of the tile before, until they are stored.
  // The next item is taken while this one's first block is multiplied.
  struct State {
    Ring ring;
    typename Queue::Ring queue_ring;
    WorkItem next;
    bool more;             // there is a next item
    bool awaited = false;  // the block at the ring's place
    float dy_scales[2];    // of that block, of this thread's rows
    Place pending;
    float sum[64];
  };

  __device__ __forceinline__ Shared Dy(int stage) const {
    return memory_ + stage * Layout::kStageBytes;
  }
  __device__ __forceinline__ Shared X(int stage) const { return Dy(stage) + Layout::kDyBytes; }
  __device__ __forceinline__ Shared DyScales(int stage) const {
    return memory_ + Layout::kScaleOffset + stage * Layout::kScaleBytes;
  }
  __device__ __forceinline__ Shared XScales(int stage) const {
    return DyScales(stage) + Layout::kRows * 4;
  }
  __device__ __forceinline__ int Column(const WorkItem& item) const {
    return (item.m_group * kCluster + rank_) * kTileColumns;
  }
  __device__ __forceinline__ static int Halves(const WorkItem& item) {
    return Layout::kItemRows > Layout::kRows && item.n_size > Layout::kRows ? 2 : 1;
  }

  __device__ __forceinline__ Place TilePlace(const WorkItem& item, int warp, int half) const {
    const int row = half * Layout::kRows + 16 * warp;
    Place place;
    place.row = item.n_begin + row;
    place.rows = max(0, min(16, item.n_size - row));
    place.column = Column(item);
    place.expert = item.expert;
    return place;
  }

  __device__ __forceinline__ void StorePending(Store* store, State* state) const {
    store->Write(state->pending, state->sum);
    state->pending.rows = 0;
  }

  __device__ __forceinline__ void PopNext(State* state) const {
    state->more = queue_.PopUniform(&state->queue_ring, &state->next);
  }

  // Whether the warp's warpgroup has rows in the item's tiles, and something to add up.
  __device__ __forceinline__ static bool Multiplies(const WorkItem& item, int warp) {
    return item.row_begin < item.row_end && (kGroups == 2 || 64 * (warp / 4) < item.n_size);
  }

  // `last` of the item.
  __device__ __forceinline__ void Tile(Store* store, int warp, const WorkItem& item, bool last,
                                       State* state) const {
    // Never awaited yet. That it is asked makes ptxas assign registers with which the kernel is
    // 0.5 % faster.
    if (!state->awaited) Await(warp, state);
    int left = (item.row_end - item.row_begin) / kTileK - 1;
    MultiplyBlock<true>(store, warp, left, last, state);
#pragma unroll 1
    for (; left > 0; --left) MultiplyBlock<false>(store, warp, left - 1, last, state);
  }

  // The block at the ring's place, and the scales of this thread's rows: lane / 4 and that + 8 of
  // the warp's 16.
  __device__ __forceinline__ void Await(int warp, State* state) const {
    const Ring& ring = state->ring;
    sm90::BarrierWait(stages_.Full(ring.stage), ring.parity);
    const Shared from = DyScales(ring.stage) + 4 * (16 * warp + threadIdx.x % 32 / 4);
    state->dy_scales[0] = LoadShared(from);
    state->dy_scales[1] = LoadShared(from + 4 * 8);
  }

  // The block that follows, of `left` in the tile.
  __device__ __forceinline__ void AwaitNext(int warp, int left, State* state) const {
    state->awaited = left > 0;
    if (state->awaited) Await(warp, state);
  }

  // A block of the contraction that has been awaited; `left` behind it in the tile.
  template <bool kFirst>
  __device__ __forceinline__ void MultiplyBlock(Store* store, int warp, int left, bool last,
                                                State* state) const {
    const int stage = state->ring.stage;
    state->ring.Advance();
    float product[64];
    Multiply(Dy(stage) + warp / 4 * 64 * kTileK, X(stage), product);
    // The sums of the tile before: as many as there are buffers while the block is multiplied, the
    // others right before they change.
    if constexpr (kFirst) {
      store->Write(state->pending, state->sum, 0, Store::kAtOnce);
      if (last) PopNext(state);
    }
    const auto promote = [&](int i, float scale) {
      if (kFirst && i % 16 == 0 && i / 16 >= Store::kAtOnce)
        store->Write(state->pending, state->sum, i / 16, i / 16 + 1);
      state->sum[i] = kFirst ? scale * product[i] : fmaf(scale, product[i], state->sum[i]);
    };
    const Shared x_scales = XScales(stage) + 8 * (threadIdx.x % 4);
    if constexpr (kGroups == 2) {
      float scale[64];
#pragma unroll
      for (int i = 0; i < 64; i += 4) {
        const float2 x = LoadShared2(x_scales + 8 * i);
#pragma unroll
        for (int k = 0; k < 4; ++k)
          scale[i + k] = state->dy_scales[k / 2] * (k % 2 == 0 ? x.x : x.y);
      }
      // Here, not after the wait.
#pragma unroll
      for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(scale[i]));
      AwaitNext(warp, left, state);
      FinishMultiply(product);
      stages_.Release(stage);
#pragma unroll
      for (int i = 0; i < 64; ++i) promote(i, scale[i]);
    } else {
      // The first scales before the wait: the promotion begins at once. More of them at a time, or
      // none, is 1 to 4 % slower.
      constexpr int kAhead = 2;
      const float rows[2] = {state->dy_scales[0], state->dy_scales[1]};
      float2 ahead[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) ahead[j] = LoadShared2(x_scales + 32 * j);
      AwaitNext(warp, left, state);
      FinishMultiply(product);
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const float2 x = j < kAhead ? ahead[j % kAhead] : LoadShared2(x_scales + 32 * j);
#pragma unroll
        for (int k = 0; k < 4; ++k) promote(4 * j + k, rows[k / 2] * (k % 2 == 0 ? x.x : x.y));
      }
      stages_.Release(stage);
    }
    if constexpr (kFirst) state->pending.rows = 0;
  }

  // The warpgroup has no rows in the tile: what arrives is let go.
  __device__ __forceinline__ void StandBy(const WorkItem& item, State* state) const {
    for (int k = item.row_begin; k < item.row_end; k += kTileK) {
      sm90::BarrierWait(stages_.Full(state->ring.stage), state->ring.parity);
      stages_.Release(state->ring.stage);
      state->ring.Advance();
    }
  }

  const WgradParams& params_;
};

}  // namespace yardmaster::sm90fp8
