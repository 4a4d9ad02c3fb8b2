// File: kernels/grouped_gemm_fp8/sm90_fp8_config.h
//
// Sizes of the Hopper FP8 grouped GEMM, and how forward deals its tiles. A block computes 256 x 128
// outputs, 128 of the contraction at a time; the two blocks of a cluster lie side by side along the
// columns and share the 256 rows. Pure functions, the same on every call.
#pragma once

#include "kernels/grouped_gemm/sm90_config.h"
#include "kernels/grouped_gemm/sm90_schedule.h"

namespace yardmaster::sm90fp8 {

inline constexpr int kTileRows = 256;
inline constexpr int kTileColumns = 128;
inline constexpr int kTileK = 128;  // a run of scales: what is promoted at once
inline constexpr int kCluster = 2;
inline constexpr int kClusterColumns = kCluster * kTileColumns;
inline constexpr int kConsumerWarps = 8;
inline constexpr int kThreads = 384;  // a producer warpgroup, two consumer warpgroups
static_assert(kTileRows == sm90::kTileN && kTileColumns == sm90::kTileM &&
                  kCluster == sm90::kCluster,
              "wgrad is dealt as the BF16 kernel deals it");

inline constexpr int kStages = 4;  // blocks of the contraction in flight
inline constexpr int kABytes = kTileRows * kTileK;
inline constexpr int kBBytes = kTileColumns * kTileK;
inline constexpr int kStageBytes = kABytes + kBBytes;
// Scales of A are copied from a multiple of 4 on (a copy that begins between is an illegal
// instruction on the H200), for 128 rows and 4 more at a time.
inline constexpr int kRowScaleBox = kTileColumns + 4;
inline constexpr int kRowScaleBytes = 1152;  // 2 x 128 + 4 scales, to a multiple of 128
inline constexpr int kScaleBytes = kRowScaleBytes + kTileColumns * 4;
inline constexpr int kScaleOffset = kStages * kStageBytes;
inline constexpr int kStoreOffset = (kScaleOffset + kStages * kScaleBytes + 1023) / 1024 * 1024;
inline constexpr int kChunkBytes = 8 * 128;  // what one copy stores: 8 rows of 128 bytes
inline constexpr int kStoreChunks = 3;       // per warp
inline constexpr int kBarrierOffset = kStoreOffset + kConsumerWarps * kStoreChunks * kChunkBytes;
inline constexpr int kQueueItems = 4;  // work items dealt ahead
inline constexpr int kQueueItemBytes = 32;
inline constexpr int kQueueOffset = kBarrierOffset + 128;
inline constexpr int kRowStartOffset = kQueueOffset + kQueueItems * kQueueItemBytes;
inline constexpr int kSharedMemoryBytes = kRowStartOffset + 4 * (512 + 1);
static_assert(kSharedMemoryBytes <= sm90::kSharedMemoryLimit &&
              (2 * kTileColumns + 4) * 4 <= kRowScaleBytes);
static_assert(2 * (kStages + kQueueItems) * 8 <= 128 && sizeof(sm90::WorkItem) <= kQueueItemBytes);

struct Config {
  int clusters = 0;   // grid in clusters
  int group = 8;      // inner tiles walked before the next outer tile
  int tile_cost = 0;  // wgrad: what a tile costs beside its rows, in units of sm90::kRowUnit rows
};

inline Config SelectConfig(int sm_count, int free_sms) {
  Config config;
  const int sms = sm_count - (free_sms > 0 ? free_sms : 0);
  config.clusters = sms >= kCluster ? sms / kCluster : 1;
  if (config.clusters > sm90::kMaxClusters) config.clusters = sm90::kMaxClusters;
  // The stores of FP32 take about as long as four blocks of the contraction.
  config.tile_cost = 4 * kTileK / sm90::kRowUnit;
  return config;
}

// Forward's tiles: an expert of c rows has ceil(c / 256) row tiles, whole ones first, since
// arithmetic is done in steps of 128 rows wherever they begin. Item i goes to cluster i % clusters.
// Order within an expert: groups of `group` row tiles; in a group one column tile after the other.
class RowSchedule {
 public:
  // row_start: [experts + 1], ascending. column_groups: column tiles / blocks of a cluster, rounded
  // up.
  YM_HOST_DEVICE RowSchedule(int experts, int column_groups, int group, const int* row_start)
      : experts_(experts), column_groups_(column_groups), group_(group), row_start_(row_start) {}

  // False past the end. `index` must not decrease from call to call. The item's n_begin, n_size are
  // rows.
  YM_HOST_DEVICE bool Find(int index, sm90::WorkItem* item) {
    while (index >= first_ + row_tiles_ * column_groups_) {
      first_ += row_tiles_ * column_groups_;
      if (++expert_ >= experts_) return false;
      row_tiles_ = (row_start_[expert_ + 1] - row_start_[expert_] + kTileRows - 1) / kTileRows;
    }
    const int local = index - first_;
    const int group = local / (group_ * column_groups_);
    const int in_group = local - group * group_ * column_groups_;
    const int left = row_tiles_ - group * group_;
    const int height = left < group_ ? left : group_;
    const int outer = in_group / height;
    const int inner = group * group_ + in_group - outer * height;
    item->expert = expert_;
    item->row_begin = row_start_[expert_];
    item->row_end = row_start_[expert_ + 1];
    item->m_group = outer;
    item->n_begin = item->row_begin + inner * kTileRows;
    const int rest = item->row_end - item->n_begin;
    item->n_size = rest < kTileRows ? rest : kTileRows;
    return true;
  }

 private:
  const int experts_, column_groups_, group_;
  const int* const row_start_;
  int expert_ = -1;
  int row_tiles_ = 0;  // of the expert
  int first_ = 0;      // items of the experts before
};

}  // namespace yardmaster::sm90fp8
