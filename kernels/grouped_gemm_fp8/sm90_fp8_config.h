// File: kernels/grouped_gemm_fp8/sm90_fp8_config.h
//
// Sizes of the Hopper FP8 grouped GEMM, and how forward deals its tiles. A block of forward computes
// 256 x 128 outputs, of wgrad 128 x 128 or 192 x 128, 128 of the contraction at a time; the two
// blocks of a cluster lie side by side along the columns and share the rows. Pure functions, the
// same on every call.
#pragma once

#include "kernels/grouped_gemm/sm90_config.h"
#include "kernels/grouped_gemm/sm90_schedule.h"

namespace yardmaster::sm90fp8 {

inline constexpr int kTileRows = 256;
inline constexpr int kTileColumns = 128;
inline constexpr int kTileK = 128;  // a run of scales: what is promoted at once
inline constexpr int kCluster = 2;
inline constexpr int kClusterColumns = kCluster * kTileColumns;
static_assert(kCluster == sm90::kCluster && kClusterColumns == kCluster * sm90::kTileM,
              "wgrad is dealt as the BF16 kernel deals it");

// A block is a producer warpgroup and two or three consumer warpgroups. Registers move between them
// after the launch, which gives all threads the same number; more than there are would let a
// warpgroup wait for ever.
template <int kWarpgroups>
inline constexpr int kThreads = 128 * (1 + kWarpgroups);
template <int kWarpgroups>
inline constexpr int kDealerRegisters = kWarpgroups == 2 ? sm90::kDealerRegisters : 32;
template <int kWarpgroups>
inline constexpr int kConsumerRegisters = kWarpgroups == 2 ? sm90::kConsumerRegisters : 160;
static_assert(kDealerRegisters<3> + 3 * kConsumerRegisters<3> <= 4 * 128);

inline constexpr int kQueueItems = 4;  // work items dealt ahead
inline constexpr int kMaxGroups = 512;

struct Config {
  int clusters = 0;   // grid in clusters
  int group = 8;      // inner tiles walked before the next outer tile
  int tile_cost = 0;  // wgrad: what a tile costs beside its rows, in units of sm90::kRowUnit rows
  int wgrad_warpgroups = 2;  // consumer warpgroups of wgrad: 2 or 3
};

// Three warpgroups overlap arithmetic and multiplication better than two, but their tiles are half
// as large again and leave less shared memory to wait in: where tiles are short and adding to the
// gradients bounds the kernel, two are faster (docs/performance.md).
inline int WgradWarpgroups(int64_t rows, int groups, bool accumulate) {
  return accumulate && rows < int64_t{2048} * groups ? 2 : 3;
}

// `warpgroups`: 2, 3, or 0 for the choice above. With three, tiles are walked along whole rows.
inline void ChooseWgrad(int64_t rows, int groups, int columns, bool accumulate, int warpgroups,
                        Config* config) {
  config->wgrad_warpgroups =
      warpgroups != 0 ? warpgroups : WgradWarpgroups(rows, groups, accumulate);
  if (config->wgrad_warpgroups == 3)
    config->group = (columns + kClusterColumns - 1) / kClusterColumns;
}

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
// Where the last round would leave half of the clusters idle, its items are cut into two or four
// parts.
class RowSchedule {
 public:
  // row_start: [experts + 1], ascending. column_groups: column tiles / blocks of a cluster, rounded
  // up.
  YM_HOST_DEVICE RowSchedule(int experts, int column_groups, int group, int clusters,
                             const int* row_start)
      : experts_(experts), column_groups_(column_groups), group_(group), row_start_(row_start) {
    for (int e = 0; e < experts; ++e) total_ += RowTiles(e) * column_groups;
    const int rest = total_ % clusters;
    whole_ = total_ - rest;
    parts_ = 4 * rest <= clusters ? 4 : 2 * rest <= clusters ? 2 : 1;
  }

  // False past the end. `index` must not decrease from call to call. The item's n_begin, n_size are
  // rows; n_size 0: nothing to do (a part without rows).
  YM_HOST_DEVICE bool Find(int index, sm90::WorkItem* item) {
    int part = 0;
    if (index >= whole_) {
      part = (index - whole_) % parts_;
      index = whole_ + (index - whole_) / parts_;
    }
    if (index >= total_) return false;
    while (index >= first_ + row_tiles_ * column_groups_) {
      first_ += row_tiles_ * column_groups_;
      row_tiles_ = RowTiles(++expert_);
    }
    const int local = index - first_;
    const int group = local / (group_ * column_groups_);
    const int in_group = local - group * group_ * column_groups_;
    const int left = row_tiles_ - group * group_;
    const int height = left < group_ ? left : group_;
    const int outer = in_group / height;
    const int inner = group * group_ + in_group - outer * height;
    const int size = index < whole_ ? kTileRows : kTileRows / parts_;
    item->expert = expert_;
    item->row_begin = row_start_[expert_];
    item->row_end = row_start_[expert_ + 1];
    item->m_group = outer;
    item->n_begin = item->row_begin + inner * kTileRows + part * size;
    const int rest = item->row_end - item->n_begin;
    item->n_size = rest <= 0 ? 0 : rest < size ? rest : size;
    return true;
  }

 private:
  YM_HOST_DEVICE int RowTiles(int expert) const {
    return (row_start_[expert + 1] - row_start_[expert] + kTileRows - 1) / kTileRows;
  }

  const int experts_, column_groups_, group_;
  const int* const row_start_;
  int total_ = 0;  // items
  int whole_ = 0;  // those before the last round that is not full
  int parts_ = 1;  // into which the others are cut
  int expert_ = -1;
  int row_tiles_ = 0;  // of the expert
  int first_ = 0;      // items of the experts before
};

}  // namespace yardmaster::sm90fp8
