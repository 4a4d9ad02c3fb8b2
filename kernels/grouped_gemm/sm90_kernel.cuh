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
    int m_valid;      // rows of the tile inside the expert (or inside D), possibly more than kTileM
    int k_blocks;
    int last_k;       // of the last contraction block
  };

  __device__ __forceinline__ Extent ExtentOf(const WorkItem& item) const {
    Extent extent;
    if constexpr (kRaggedM) {
      extent.m_valid = item.row_end - item.row_begin - item.m_tile * kTileM;
      extent.k_blocks = params_.fixed_k_blocks;
      extent.last_k = kTileK;
    } else {
      const int rows = item.row_end - item.row_begin;
      extent.m_valid = params_.m_extent - item.m_tile * kTileM;
      extent.k_blocks = (rows + kTileK - 1) / kTileK;
      extent.last_k = rows - (extent.k_blocks - 1) * kTileK;
    }
    return extent;
  }

  // ---- producer: one thread -----------------------------------------------------------------------------------------

  __device__ __forceinline__ void Produce(const CUtensorMap* a_map, const CUtensorMap* b_map, const CUtensorMap* d_prefetch_map) {
    Schedule schedule(params_.schedule, row_start_);
    Ring<kStages> ring;
    WorkItem item;
    const int clusters = gridDim.x / kClusterSize;
    for (int index = blockIdx.x / kClusterSize; schedule.Find(index, rank_, &item); index += clusters) {
      const Extent extent = ExtentOf(item);
      const bool narrow = extent.m_valid <= 64;
      for (int kb = 0; kb < extent.k_blocks; ++kb) {
        BarrierWait(Empty(ring.stage), ring.parity ^ 1);
        BarrierExpectBytes(Full(ring.stage), (narrow ? kABoxBytes : kABytes) + kBBytes);
        const int valid_k = kb + 1 == extent.k_blocks ? extent.last_k : kTileK;
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
          if (params_.accumulate && kb < kPrefetchPieces) PrefetchD(d_prefetch_map, item, kb);
        }
        ring.Advance();
      }
    }
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

  __device__ __forceinline__ void Consume(const CUtensorMap* d_map) {
    // The shuffles tell the compiler that every thread of a warp takes the same branches.
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0) - 1;
    Schedule schedule(params_.schedule, row_start_);
    Ring<kStages> ring;
    WorkItem item;
    const int clusters = gridDim.x / kClusterSize;
    for (int index = blockIdx.x / kClusterSize; schedule.Find(index, rank_, &item); index += clusters) {
      const Extent extent = ExtentOf(item);
      if (extent.m_valid <= 64 * group) {
        for (int kb = 0; kb < extent.k_blocks; ++kb) {
          BarrierWait(Full(ring.stage), ring.parity);
          Release(ring.stage);
          ring.Advance();
        }
        continue;
      }
      float d[128];
      Multiply(extent, group, &ring, d);
      Store(d_map, item, extent, group, d);
    }
    if (threadIdx.x % 32 == 0) BulkWaitAll();
  }

  // Every warp signals the producers of both blocks, since both write to this block's stages.
  __device__ __forceinline__ void Release(int stage) const {
    const uint32_t lane = threadIdx.x % 32;
    if (lane < kClusterSize) BarrierArriveCluster(Empty(stage), lane);
  }

  __device__ __forceinline__ void Multiply(const Extent& extent, int group, Ring<kStages>* ring, float (&d)[128]) const {
#pragma unroll
    for (int i = 0; i < 128; ++i) d[i] = 0.0f;
    int previous = -1;
    for (int kb = 0; kb < extent.k_blocks; ++kb) {
      BarrierWait(Full(ring->stage), ring->parity);
      const uint64_t a = MatrixDescriptor<kAKMajor>(A(ring->stage) + group * kABoxBytes, kABoxBytes);
      const uint64_t b = MatrixDescriptor<kBKMajor>(B(ring->stage), kBBoxBytes);
      WgmmaFence();
#pragma unroll
      for (int step = 0; step < kTileK / 16; ++step) {
        Wgmma64x256x16<kAKMajor, kBKMajor>(d, a + step * kDescriptorStepK16<kAKMajor>, b + step * kDescriptorStepK16<kBKMajor>);
      }
      WgmmaCommit();
      WgmmaWait<1>();
      if (previous >= 0) Release(previous);
      previous = ring->stage;
      ring->Advance();
    }
    WgmmaWaitAll(d);
    if (previous >= 0) Release(previous);
  }

  __device__ __forceinline__ void Store(const CUtensorMap* map, const WorkItem& item, const Extent& extent, int group,
                                        float (&d)[128]) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32 % 4;
    const int m = item.m_tile * kTileM + 64 * group + 16 * warp;
    const int valid = min(16, extent.m_valid - 64 * group - 16 * warp);
    if (valid <= 0) return;
    const int consumer_warp = 4 * group + warp;
    const Shared buffers = memory_ + kStages * kStageBytes + consumer_warp * kStoreBuffers * kStoreBufferBytes;
#pragma unroll
    for (int chunk = 0; chunk < kTileN / kStoreColumns; ++chunk) {
      const int n = item.n_tile * kTileN + chunk * kStoreColumns;
      if (n < params_.n_extent) {
        const Shared buffer = buffers + store_buffer_ * kStoreBufferBytes;
        store_buffer_ = store_buffer_ + 1 == kStoreBuffers ? 0 : store_buffer_ + 1;
        if (lane == 0) BulkWaitRead<kStoreBuffers - 1>();
        __syncwarp();
        if constexpr (kFp32) {
          WriteFp32(buffer, lane, d, chunk);
        } else {
          WriteBf16(buffer, lane, d, chunk);
        }
        FenceAsyncShared();
        __syncwarp();
        if (lane == 0) {
          if constexpr (kRaggedM) {
            TmaStore(map, buffer, n, 16 - valid, item.row_begin + m + valid);
          } else if (params_.accumulate) {
            TmaReduceAdd(map, buffer, n, m, item.expert);
          } else {
            TmaStore(map, buffer, n, m, item.expert);
          }
          BulkCommit();
        }
      }
    }
  }

  // Sixteen rows of 64 columns, swizzled as the map expects.
  __device__ __forceinline__ static void WriteBf16(Shared buffer, int lane, const float (&d)[128], int chunk) {
    const int row = lane % 16;
    const int half = lane / 16;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float* v = d + 4 * (8 * chunk + 2 * pair);
      const Shared to = buffer + row * 128 + (((2 * pair + half) ^ (row & 7)) << 4);
      StoreMatrix4(to, PackBf16(v[0], v[1]), PackBf16(v[2], v[3]), PackBf16(v[4], v[5]), PackBf16(v[6], v[7]));
    }
  }

  // Sixteen rows of 32 columns.
  __device__ __forceinline__ static void WriteFp32(Shared buffer, int lane, const float (&d)[128], int chunk) {
    const int row = lane / 4;
    const int pair = lane % 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* v = d + 4 * (4 * chunk + j);
      const Shared to = buffer + row * 128 + (((2 * j + pair / 2) ^ row) << 4) + (pair % 2) * 8;
      StoreShared2(to, v[0], v[1]);
      StoreShared2(to + 8 * 128, v[2], v[3]);
    }
  }

 private:
  const GemmParams& params_;
  const Shared memory_;
  const int* const row_start_;
  const uint32_t rank_;
  int store_buffer_ = 0;
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
    RegistersShrink<40>();
    if (threadIdx.x == 0) block.Produce(&a_map, &b_map, &d_prefetch_map);
    __syncwarp();
  } else {
    RegistersGrow<232>();
    block.Consume(&d_map);
    __syncwarp();
  }
  // A block's shared memory must outlive what its peer still writes there.
  ClusterSync();
}

}  // namespace yardmaster::sm90
