// File: kernels/grouped_gemm/sm90_config.h
//
// How the Hopper grouped GEMM runs: a pure function of shape and multiprocessor count, the same on every call and testable
// without a GPU. Nothing is timed at run time.
#pragma once

namespace yardmaster::sm90 {

enum class GemmOp { kForward, kDgrad, kWgrad };

// A block computes 128 x 256 outputs, 64 of the contraction at a time; the two blocks of a cluster share one operand.
inline constexpr int kTileM = 128;
inline constexpr int kTileN = 256;
inline constexpr int kTileK = 64;
inline constexpr int kClusterSize = 2;
inline constexpr int kConsumerWarps = 8;
inline constexpr int kThreads = 384;  // a producer warpgroup, two consumer warpgroups

inline constexpr int kStageBytes = (kTileM + kTileN) * kTileK * 2;
inline constexpr int kStoreBufferBytes = 16 * 128;          // 16 rows of 128 bytes: one warp's part of one store
inline constexpr int kSharedMemoryLimit = 227 * 1024;       // what a block of sm_90 may have
inline constexpr int kBookkeepingBytes = 128 + 4 * (512 + 1);  // barriers, row starts of the experts

struct GemmConfig {
  int stages = 4;         // operand tiles in flight
  int store_buffers = 2;  // per consumer warp
  int group_m = 8;        // cluster rows walked before the next column of tiles
  int clusters = 0;       // grid in clusters
  int stagger_clocks = 0; // how much later the last cluster starts than the first
  bool prefetch = true;   // wgrad, beta 1: D into L2 while the tile is computed
};

inline constexpr int SharedMemoryBytes(int stages, int store_buffers) {
  return stages * kStageBytes + kConsumerWarps * store_buffers * kStoreBufferBytes + kBookkeepingBytes;
}

// Four stages leave room for two store buffers a warp: half of a BF16 tile. Three stages leave room for five.
inline GemmConfig SelectConfig(GemmOp op, bool fp32_output, int sm_count, int free_sms) {
  (void)op;
  (void)fp32_output;
  GemmConfig config;
  const int sms = sm_count - (free_sms > 0 ? free_sms : 0);
  config.clusters = sms >= kClusterSize ? sms / kClusterSize : 1;
  return config;
}

}  // namespace yardmaster::sm90
