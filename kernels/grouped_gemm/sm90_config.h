// File: kernels/grouped_gemm/sm90_config.h
//
// How the Hopper grouped GEMM runs: a pure function of shape and multiprocessor count, the same on
// every call and testable without a GPU. Nothing is timed at run time.
#pragma once

namespace yardmaster::sm90 {

enum class GemmOp { kForward, kDgrad, kWgrad };

// A block computes 128 x 256 outputs, 64 of the contraction at a time. The blocks of a cluster lie
// side by side along M and share the N operand. N tiles may be smaller, in steps of kRowUnit.
inline constexpr int kTileM = 128;
inline constexpr int kTileN = 256;
inline constexpr int kTileK = 64;
inline constexpr int kRowUnit = 16;
inline constexpr int kCluster = 2;
inline constexpr int kConsumerWarps = 8;
inline constexpr int kThreads = 384;  // a producer warpgroup, two consumer warpgroups

// Registers of a thread of the first and of the consumer warpgroups, moved between them after the
// launch, which takes 168 for each. More than there are would let a warpgroup wait for ever.
inline constexpr int kDealerRegisters = 40;
inline constexpr int kConsumerRegisters = 232;
static_assert(kDealerRegisters + 2 * kConsumerRegisters <= 3 * 168);

inline constexpr int kStages = 4;  // operand tiles in flight
inline constexpr int kStageBytes = (kTileM + kTileN) * kTileK * 2;
inline constexpr int kStoreBytes = 16 * 1024;          // per consumer warpgroup
inline constexpr int kSharedMemoryLimit = 227 * 1024;  // what a block of sm_90 may have
inline constexpr int kBarrierOffset = kStages * kStageBytes + 2 * kStoreBytes;
inline constexpr int kQueueItems = 4;  // work items dealt ahead
inline constexpr int kQueueItemBytes = 32;
inline constexpr int kQueueOffset = kBarrierOffset + 128;
inline constexpr int kRowStartOffset = kQueueOffset + kQueueItems * kQueueItemBytes;
inline constexpr int kSharedMemoryBytes = kRowStartOffset + 4 * (512 + 1);
static_assert(kSharedMemoryBytes <= kSharedMemoryLimit && 2 * (kStages + kQueueItems) * 8 <= 128);

inline constexpr int kMaxClusters = 128;

struct GemmConfig {
  int clusters = 0;     // grid in clusters
  int group = 4;        // inner tiles walked before the next outer tile
  int store_pause = 0;  // FP32 output: blocks multiplied between two parts of a store
  int tile_cost = 0;    // wgrad: what a tile costs beside its rows, in units of kRowUnit rows
};

inline GemmConfig SelectConfig(GemmOp op, bool fp32_output, int sm_count, int free_sms) {
  GemmConfig config;
  const int sms = sm_count - (free_sms > 0 ? free_sms : 0);
  config.store_pause = op == GemmOp::kWgrad ? 3 : 0;
  config.clusters = sms >= kCluster ? sms / kCluster : 1;
  if (config.clusters > kMaxClusters) config.clusters = kMaxClusters;
  // The stores of FP32 take as long as four blocks of the contraction, of BF16 one and a half.
  config.tile_cost = (fp32_output ? 256 : 96) / kRowUnit;
  return config;
}

}  // namespace yardmaster::sm90
