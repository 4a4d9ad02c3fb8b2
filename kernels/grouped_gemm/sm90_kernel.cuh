// File: kernels/grouped_gemm/sm90_kernel.cuh
//
// Grouped GEMM for Hopper: D = A B per expert, one persistent launch.
//
//            M             N    contraction     A            B            D
//   forward  rows, ragged  N    K               x_RK  (K)    w_LNK (K)    y_RN   bf16
//   dgrad    rows, ragged  K    N               dy_RN (K)    w_LNK (MN)   dx_RK  bf16
//   wgrad    N             K    rows, ragged    dy_RN (MN)   x_RK  (MN)   dw_LNK bf16 or fp32
//   (K): the contraction is contiguous in memory; (MN): the other index is. wgmma reads both, so nothing is transposed.
//
// Cost        2 R N K FLOPs. Bound by the tensor cores (in practice by power) for all training shapes: a 256 x 256 cluster
//             tile reads 64 KB from L2 per 8.4 MFLOP. wgrad with FP32 output and many experts also moves 4 or 8 bytes per
//             weight: its tile is drained by TMA stores, or added to memory by TMA reductions (beta 1) whose lines are
//             prefetched into L2 while the tile is computed.
// Structure   One producer thread keeps `kStages` operand tiles in flight (TMA, 128-byte swizzle, multicast to both blocks
//             of the cluster for the shared operand). Two consumer warpgroups own 64 x 256 outputs each in registers.
//             They do not wait for each other: while one stores its half, the other can still multiply.
// Store       Each consumer warp moves its 16 rows through shared memory, 128 bytes of columns at a time, and stores them
//             by TMA; it never waits for another warp.
// Numerics    BF16 products, FP32 accumulation in the tensor core along the whole contraction, rounded once to the output
//             type. Every output element belongs to one block and is written (or added to) once: deterministic.
// Tails       Rows are cut by the coordinates of the ragged map (tensor_map.h): what lies beyond the expert's last row is
//             read as zeros, never from memory, and not written, so it may hold NaN. A tile with at most 64 rows left runs
//             one warpgroup; wgrad's last contraction block runs in steps of 16 rows. Columns beyond N or K are cut by the
//             maps' extents.
// Launch      Clusters of 2 blocks of 384 threads, one block per multiprocessor, up to 227 KB of shared memory; sm_90a.
// Reference   tools/bench/grouped_gemm_check.cu (double), docs/performance.md (measured).
#pragma once

#include "kernels/common/ptx_sm90.cuh"
#include "kernels/common/wgmma_sm90.cuh"
#include "kernels/grouped_gemm/sm90_config.h"
#include "kernels/grouped_gemm/sm90_schedule.h"

namespace yardmaster::sm90 {

struct GemmParams {
  const int64_t* offsets;  // [experts + 1]
  ScheduleShape schedule;
  int rows;              // R
  int m_extent;          // wgrad: rows of D
  int n_extent;          // columns of D
  int fixed_k_blocks;    // forward, dgrad
  bool accumulate;       // wgrad: add to D
  int stagger_clocks;    // the last cluster starts this much later than the first
  bool prefetch;
  uint32_t zero = 0;
};

// Position in the ring of stages; parity flips on every lap.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <GemmOp kOp, bool kFp32, int kStages, int kStoreBuffers>
class GemmBlock {
 public:
  static constexpr bool kRaggedM = kOp != GemmOp::kWgrad;
  static constexpr bool kAKMajor = kOp != GemmOp::kWgrad;
  static constexpr bool kBKMajor = kOp == GemmOp::kForward;
  static constexpr int kABoxBytes = 64 * 128;
  static constexpr int kBBoxes = kBKMajor ? 2 : 4;  // 128 rows of n, or 64 columns of n by 64 k
  static constexpr int kBBoxBytes = kTileN * 128 / kBBoxes;
  static constexpr int kABytes = 2 * kABoxBytes;
  static constexpr int kBBytes = kTileN * 128;
  static constexpr int kStoreColumns = kFp32 ? 32 : 64;  // 128 bytes
  static constexpr int kPrefetchPieces = kTileN / 32;
  static constexpr int kSkew = kStages / 2;  // blocks by which the low half of a tile runs ahead at its ends

  __device__ __forceinline__ GemmBlock(const GemmParams& params, Shared memory, const int* row_start)
      : params_(params), memory_(memory), row_start_(row_start), rank_(ClusterRank()) {}

  static constexpr int kBarrierOffset = kStages * kStageBytes + kConsumerWarps * kStoreBuffers * kStoreBufferBytes;
  static constexpr int kRowStartOffset = kBarrierOffset + 128;
  static_assert(2 * kStages * 8 <= 128);

  __device__ __forceinline__ Shared Full(int stage) const { return memory_ + kBarrierOffset + 8 * stage; }
  __device__ __forceinline__ Shared Empty(int stage) const { return memory_ + kBarrierOffset + 8 * (kStages + stage); }
  __device__ __forceinline__ Shared A(int stage) const { return memory_ + stage * kStageBytes; }
  __device__ __forceinline__ Shared B(int stage) const { return A(stage) + kABytes; }

  __device__ __forceinline__ void InitBarriers() const {
    for (int s = 0; s < kStages; ++s) {
      BarrierInit(Full(s), 1);
      BarrierInit(Empty(s), kConsumerWarps * kClusterSize);
    }
    FenceBarrierInit();
  }

  // What a tile's owner needs to know beyond its place.
  struct Extent {
    int m_valid;    // rows of the tile inside the expert (or inside D), possibly more than kTileM
    int k_rows;     // wgrad: rows of the expert
    int k_blocks;   // zero, or at least 2 kSkew: blocks beyond the contraction's end are read as zeros
  };

  __device__ __forceinline__ Extent ExtentOf(const WorkItem& item) const {
    Extent extent;
    extent.k_rows = item.row_end - item.row_begin;
    if constexpr (kRaggedM) {
      extent.m_valid = extent.k_rows - item.m_tile * kTileM;
      extent.k_blocks = max(2 * kSkew, params_.fixed_k_blocks);
    } else {
      extent.m_valid = params_.m_extent - item.m_tile * kTileM;
      extent.k_blocks = extent.k_rows == 0 ? 0 : max(2 * kSkew, (extent.k_rows + kTileK - 1) / kTileK);
    }
    return extent;
  }

  // ---- producer: one thread -----------------------------------------------------------------------------------------

  __device__ __forceinline__ void Produce(const CUtensorMap* a_map, const CUtensorMap* b_map, const CUtensorMap* d_prefetch_map) {
    Schedule schedule(params_.schedule, row_start_);
    Ring<kStages> ring;
    WorkItem item;
    const int clusters = gridDim.x / kClusterSize;
    WaitTurn(blockIdx.x / kClusterSize, clusters);
    for (int index = blockIdx.x / kClusterSize; schedule.Find(index, rank_, &item); index += clusters) {
      const Extent extent = ExtentOf(item);
      const bool narrow = extent.m_valid <= 64;
      for (int kb = 0; kb < extent.k_blocks; ++kb) {
        BarrierWait(Empty(ring.stage), ring.parity ^ 1);
        BarrierExpectBytes(Full(ring.stage), (narrow ? kABoxBytes : kABytes) + kBBytes);
        const int valid_k = max(0, min(kTileK, extent.k_rows - kb * kTileK));
        if (!item.share_a) {
          LoadA(a_map, item, extent, ring.stage, kb, valid_k, 0, false);
          if (!narrow) LoadA(a_map, item, extent, ring.stage, kb, valid_k, 1, false);
#pragma unroll
          for (int box = 0; box < kBBoxes / 2; ++box) {
            LoadB(b_map, item, ring.stage, kb, valid_k, rank_ * (kBBoxes / 2) + box, true);
          }
        } else {
          if (rank_ == 0 || !narrow) LoadA(a_map, item, extent, ring.stage, kb, valid_k, rank_, true);
#pragma unroll
          for (int box = 0; box < kBBoxes; ++box) LoadB(b_map, item, ring.stage, kb, valid_k, box, false);
        }
        if constexpr (kFp32) {
          if (params_.prefetch && kb < kPrefetchPieces) PrefetchD(d_prefetch_map, item, kb);
        }
        ring.Advance();
      }
    }
  }

  // Blocks that start together would also store together, tile after tile, all waiting for memory at once.
  __device__ __forceinline__ void WaitTurn(int cluster, int clusters) const {
    const long long wait = static_cast<long long>(params_.stagger_clocks) * cluster / clusters;
    const long long start = clock64();
    while (clock64() - start < wait) __nanosleep(64);
  }

  // Box `half` holds rows 64 half .. 64 half + 63 of the A tile.
  __device__ __forceinline__ void LoadA(const CUtensorMap* map, const WorkItem& item, const Extent& extent, int stage, int kb,
                                        int valid_k, int half, bool multicast) const {
    int c0, valid, row;
    if constexpr (kRaggedM) {
      c0 = kb * kTileK;
      valid = min(64, extent.m_valid - 64 * half);
      row = item.row_begin + item.m_tile * kTileM + 64 * half;
    } else {
      c0 = item.m_tile * kTileM + 64 * half;
      valid = valid_k;
      row = item.row_begin + kb * kTileK;
    }
    Load(A(stage) + half * kABoxBytes, map, Full(stage), c0, 64 - valid, row + valid, multicast);
  }

  __device__ __forceinline__ void LoadB(const CUtensorMap* map, const WorkItem& item, int stage, int kb, int valid_k, int box,
                                        bool multicast) const {
    const int n = item.n_tile * kTileN + box * (kTileN / kBBoxes);
    const Shared to = B(stage) + box * kBBoxBytes;
    if constexpr (kOp == GemmOp::kForward) {
      Load(to, map, Full(stage), kb * kTileK, n, item.expert, multicast);
    } else if constexpr (kOp == GemmOp::kDgrad) {
      Load(to, map, Full(stage), n, kb * kTileK, item.expert, multicast);
    } else {
      Load(to, map, Full(stage), n, 64 - valid_k, item.row_begin + kb * kTileK + valid_k, multicast);
    }
  }

  __device__ __forceinline__ static void Load(Shared to, const CUtensorMap* map, Shared barrier, int c0, int c1, int c2,
                                              bool multicast) {
    if (multicast) {
      TmaLoadMulticast(to, map, barrier, 0b11, c0, c1, c2);
    } else {
      TmaLoad(to, map, barrier, c0, c1, c2);
    }
  }

  __device__ __forceinline__ void PrefetchD(const CUtensorMap* map, const WorkItem& item, int piece) const {
    const int n = item.n_tile * kTileN + piece * 32;
    if (n < params_.n_extent) TmaPrefetchL2(map, n, item.m_tile * kTileM, item.expert);
  }

  // ---- consumers: two warpgroups ------------------------------------------------------------------------------------

  // Where a warp stores the tile it holds; `valid` is how many of its 16 rows there are.
  struct Place {
    int n = 0;
    int c1 = 0;
    int c2 = 0;
    int valid = 0;
  };

  // Half of a tile as it will be stored, in registers of its own: the compiler would make a read of accumulators wait for
  // all multiplications in flight.
  static constexpr int kHalfWords = kFp32 ? 64 : 32;
  struct Half {
    uint32_t word[kHalfWords];
  };

  __device__ __forceinline__ void Consume(const CUtensorMap* d_map) {
    const int group = Uniform(threadIdx.x / 128) - 1;
    Schedule schedule(params_.schedule, row_start_);
    Ring<kStages> ring;
    WorkItem item;
    Place waiting;  // the tile whose high half is still in registers
    float low[64], high[64];
    Half carried;   // its high half
    const uint32_t zero = params_.zero;
    const int clusters = gridDim.x / kClusterSize;
    for (int index = blockIdx.x / kClusterSize; FindUniform(&schedule, index, &item); index += clusters) {
      const Extent extent = ExtentOf(item);
      if (extent.m_valid <= 64 * group) {
        for (int kb = 0; kb < extent.k_blocks; ++kb) {
          BarrierWait(Full(ring.stage), ring.parity);
          Release(ring.stage);
          ring.Advance();
        }
        continue;
      }
      if (extent.k_blocks == 0) {
        StoreZeros(d_map, PlaceOf(item, extent, group));
        continue;
      }
      // Head: the low half of the first blocks is multiplied while the high half of the tile before is stored.
      const int head = min(kSkew, extent.k_blocks);
      Ring<kStages> low_ring = ring;
      BarrierWait(Full(low_ring.stage), low_ring.parity);
      WgmmaFence();
      MultiplyHalf<0, true>(low_ring.stage, group, low);
      low_ring.Advance();
#pragma unroll
      for (int i = 1; i < kSkew; ++i, low_ring.Advance()) {
        BarrierWait(Full(low_ring.stage), low_ring.parity);
        MultiplyHalf<0, false>(low_ring.stage, group, low);
      }
      WgmmaCommit();
      StoreHalf<1>(d_map, waiting, carried);
      WgmmaFence();
      Ring<kStages> unreleased = ring;
      MultiplyHalf<1, true>(ring.stage, group, high);
      ring.Advance();
#pragma unroll
      for (int i = 1; i < kSkew; ++i, ring.Advance()) MultiplyHalf<1, false>(ring.stage, group, high);
      WgmmaCommit();
      int held = kSkew;
      // Body: both halves together.
      for (int kb = 2 * kSkew; kb < extent.k_blocks; ++kb) {
        BarrierWait(Full(ring.stage), ring.parity);
        WgmmaFence();
        MultiplyBoth(ring.stage, group, low, high);
        WgmmaCommit();
        WgmmaWait<1>();
        for (; held > 0; --held, unreleased.Advance()) Release(unreleased.stage);
        held = 1;
        ring.Advance();
      }
      // Tail: the low half of the last blocks first; it is stored while the high half is multiplied.
      low_ring = ring;
      WgmmaFence();
#pragma unroll
      for (int i = 0; i < kSkew; ++i, low_ring.Advance()) {
        BarrierWait(Full(low_ring.stage), low_ring.parity);
        MultiplyHalf<0, false>(low_ring.stage, group, low);
      }
      WgmmaCommit();
#pragma unroll
      for (int i = 0; i < kSkew; ++i, ring.Advance()) MultiplyHalf<1, false>(ring.stage, group, high);
      WgmmaCommit();
      held += kSkew;
      waiting = PlaceOf(item, extent, group);
      WgmmaWaitHalf<1>(low);
      StoreHalf<0>(d_map, waiting, Pack(low, 0));
      WgmmaWaitHalf<0>(high);
      carried = Pack(high, zero);
      for (; held > 0; --held, unreleased.Advance()) Release(unreleased.stage);
    }
    StoreHalf<1>(d_map, waiting, carried);
    if (threadIdx.x % 32 == 0) BulkWaitAll();
  }

  __device__ __forceinline__ void MultiplyBoth(int stage, int group, float (&low)[64], float (&high)[64]) const {
    const uint64_t a = ADescriptor(stage, group);
    const uint64_t b = BDescriptor(stage);
#pragma unroll
    for (int step = 0; step < kTileK / 16; ++step) {
#if defined(YM_BODY_256)
      Wgmma64x256x16<kAKMajor, kBKMajor>(low, high, a + step * kDescriptorStepK16<kAKMajor>, b + step * kDescriptorStepK16<kBKMajor>);
#else
      Wgmma64x128x16<kAKMajor, kBKMajor, true>(low, a + step * kDescriptorStepK16<kAKMajor>, b + step * kDescriptorStepK16<kBKMajor>);
      Wgmma64x128x16<kAKMajor, kBKMajor, true>(high, a + step * kDescriptorStepK16<kAKMajor>,
                                               b + (kBBytes / 2 >> 4) + step * kDescriptorStepK16<kBKMajor>);
#endif
    }
  }

  // The shuffles tell the compiler that a value is the same in all threads of a warp: where it has to suspect branches
  // that differ, it waits for every wgmma before the next.
  __device__ __forceinline__ static int Uniform(int value) { return __shfl_sync(~0u, value, 0); }

  __device__ __forceinline__ bool FindUniform(Schedule* schedule, int index, WorkItem* item) const {
    const bool found = Uniform(schedule->Find(index, rank_, item));
    item->expert = Uniform(item->expert);
    item->row_begin = Uniform(item->row_begin);
    item->row_end = Uniform(item->row_end);
    item->m_tile = Uniform(item->m_tile);
    item->n_tile = Uniform(item->n_tile);
    return found;
  }

  __device__ __forceinline__ uint64_t ADescriptor(int stage, int group) const {
    return MatrixDescriptor<kAKMajor>(A(stage) + group * kABoxBytes, kABoxBytes);
  }

  __device__ __forceinline__ uint64_t BDescriptor(int stage) const { return MatrixDescriptor<kBKMajor>(B(stage), kBBoxBytes); }

  // `kFirst` starts a sum.
  template <int kHalf, bool kFirst>
  __device__ __forceinline__ void MultiplyHalf(int stage, int group, float (&d)[64]) const {
    const uint64_t a = ADescriptor(stage, group);
    const uint64_t b = BDescriptor(stage) + kHalf * (kBBytes / 2 >> 4);
    Wgmma64x128x16<kAKMajor, kBKMajor, !kFirst>(d, a, b);
#pragma unroll
    for (int step = 1; step < kTileK / 16; ++step) {
      Wgmma64x128x16<kAKMajor, kBKMajor, true>(d, a + step * kDescriptorStepK16<kAKMajor>, b + step * kDescriptorStepK16<kBKMajor>);
    }
  }

  // Every warp signals the producers of both blocks, since both write to this block's stages.
  __device__ __forceinline__ void Release(int stage) const {
    const uint32_t lane = threadIdx.x % 32;
    if (lane < kClusterSize) BarrierArriveCluster(Empty(stage), lane);
  }

  __device__ __forceinline__ Place PlaceOf(const WorkItem& item, const Extent& extent, int group) const {
    const int row = 64 * group + 16 * Uniform(threadIdx.x / 32 % 4);
    const int m = item.m_tile * kTileM + row;
    Place place;
    place.n = item.n_tile * kTileN;
    place.valid = max(0, min(16, extent.m_valid - row));
    place.c1 = kRaggedM ? 16 - place.valid : m;
    place.c2 = kRaggedM ? item.row_begin + m + place.valid : item.expert;
    return place;
  }

  // Stores 16 rows of 128 columns, two chunks of 128 bytes of columns at a time. What there is to store decides about the
  // copies alone: the accumulators are read on one straight path, beside multiplications in flight.
  template <int kHalf>
  __device__ __forceinline__ void StoreHalf(const CUtensorMap* map, const Place& place, const Half& d) {
    const int lane = threadIdx.x % 32;
    const Shared buffers = memory_ + kStages * kStageBytes + (threadIdx.x / 32 - 4) * kStoreBuffers * kStoreBufferBytes;
#pragma unroll
    for (int chunk = 0; chunk < kTileN / 2 / kStoreColumns; chunk += 2) {
      if (lane == 0) BulkWaitRead<0>();
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (kFp32) {
          WriteFp32(buffers + i * kStoreBufferBytes, lane, d.word, chunk + i);
        } else {
          WriteBf16(buffers + i * kStoreBufferBytes, lane, d.word, chunk + i);
        }
      }
      FenceAsyncShared();
      __syncwarp();
      if (lane == 0 && place.valid > 0) {
        const int n = place.n + kHalf * (kTileN / 2) + chunk * kStoreColumns;
        if (n < params_.n_extent) StoreChunk(map, buffers, n, place);
        if (n + kStoreColumns < params_.n_extent) StoreChunk(map, buffers + kStoreBufferBytes, n + kStoreColumns, place);
        BulkCommit();
      }
    }
  }

  // wgrad of an expert without rows.
  __device__ __forceinline__ void StoreZeros(const CUtensorMap* map, const Place& place) {
    const int lane = threadIdx.x % 32;
    const Shared buffer = memory_ + kStages * kStageBytes + (threadIdx.x / 32 - 4) * kStoreBuffers * kStoreBufferBytes;
    if (lane == 0) BulkWaitRead<0>();
    __syncwarp();
    for (int i = 8 * lane; i < kStoreBufferBytes; i += 8 * 32) StoreShared2(buffer + i, 0, 0);
    FenceAsyncShared();
    __syncwarp();
    if (lane == 0 && place.valid > 0) {
      for (int n = place.n; n < min(place.n + kTileN, params_.n_extent); n += kStoreColumns) StoreChunk(map, buffer, n, place);
      BulkCommit();
    }
  }

  __device__ __forceinline__ void StoreChunk(const CUtensorMap* map, Shared buffer, int n, const Place& place) const {
    if (!kRaggedM && params_.accumulate) {
      TmaReduceAdd(map, buffer, n, place.c1, place.c2);
    } else {
      TmaStore(map, buffer, n, place.c1, place.c2);
    }
  }

  __device__ __forceinline__ static Half Pack(const float (&d)[64], uint32_t zero) {
    Half half;
#pragma unroll
    for (int i = 0; i < kHalfWords; ++i) {
      if constexpr (kFp32) {
        half.word[i] = __float_as_uint(d[i]) ^ zero;
      } else {
        half.word[i] = PackBf16(d[2 * i], d[2 * i + 1]);
      }
    }
    return half;
  }

  // Sixteen rows of 64 columns, swizzled as the map expects.
  __device__ __forceinline__ static void WriteBf16(Shared buffer, int lane, const uint32_t* d, int chunk) {
    const int row = lane % 16;
    const int half = lane / 16;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const uint32_t* v = d + 2 * (8 * chunk + 2 * pair);
      StoreMatrix4(buffer + row * 128 + (((2 * pair + half) ^ (row & 7)) << 4), v[0], v[1], v[2], v[3]);
    }
  }

  // Sixteen rows of 32 columns. Odd rows write their column groups in another order (0 <-> 2, 1 <-> 3), so that the four
  // rows that go to shared memory together fall into different banks.
  __device__ __forceinline__ static void WriteFp32(Shared buffer, int lane, const uint32_t* d, int chunk) {
    const int row = lane / 4;
    const int pair = lane % 4;
    const bool odd = row & 1;
    const Shared row_address = buffer + row * 128 + (pair % 2) * 8;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t* even_group = d + 4 * (4 * chunk + j);
      const uint32_t* odd_group = d + 4 * (4 * chunk + (j ^ 2));
      const int group = odd ? j ^ 2 : j;
      const Shared to = row_address + (((2 * group + pair / 2) ^ row) << 4);
      StoreShared2(to, odd ? odd_group[0] : even_group[0], odd ? odd_group[1] : even_group[1]);
      StoreShared2(to + 8 * 128, odd ? odd_group[2] : even_group[2], odd ? odd_group[3] : even_group[3]);
    }
  }

 private:
  const GemmParams& params_;
  const Shared memory_;
  const int* const row_start_;
  const uint32_t rank_;
};

template <GemmOp kOp, bool kFp32, int kStages, int kStoreBuffers>
__global__ void __launch_bounds__(kThreads, 1)
    GroupedGemmKernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                      const __grid_constant__ CUtensorMap d_map, const __grid_constant__ CUtensorMap d_prefetch_map,
                      const __grid_constant__ GemmParams params) {
  extern __shared__ __align__(1024) uint8_t shared[];
  using Block = GemmBlock<kOp, kFp32, kStages, kStoreBuffers>;
  int* row_start = reinterpret_cast<int*>(shared + Block::kRowStartOffset);
  Block block(params, SharedAddress(shared), row_start);

  for (int i = threadIdx.x; i <= params.schedule.experts; i += kThreads) {
    const int64_t offset = params.offsets[i];
    row_start[i] = static_cast<int>(offset < 0 ? 0 : offset < params.rows ? offset : params.rows);
  }
  if (threadIdx.x == 0) {
    PrefetchMap(&a_map);
    PrefetchMap(&b_map);
    PrefetchMap(&d_map);
    block.InitBarriers();
  }
  __syncthreads();
  ClusterSync();

  if (threadIdx.x < 128) {
    RegistersShrink<56>();
    if (threadIdx.x == 0) block.Produce(&a_map, &b_map, &d_prefetch_map);
    __syncwarp();
  } else {
    RegistersGrow<224>();
    block.Consume(&d_map);
    __syncwarp();
  }
  // A block's shared memory must outlive what its peer still writes there.
  ClusterSync();
}

}  // namespace yardmaster::sm90
