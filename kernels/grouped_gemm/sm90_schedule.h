// File: kernels/grouped_gemm/sm90_schedule.h
//
// Which tile a block computes next. The persistent grid deals work items to clusters in turn: item i belongs to cluster i %
// clusters. Items are numbered expert by expert, from the row starts alone, so nothing has to be counted beforehand and
// every walk is deterministic. Runs on the host too, where it is tested.
//
// An item is one tile for each of the cluster's two blocks:
//   shared B   two tiles one below the other (m, m + 1), one column: the blocks share the B operand
//   shared A   an odd last row of tiles: one m, two neighbouring columns: the blocks share the A operand
// Order within an expert: groups of `group_m` cluster rows; in a group column by column. So the clusters at work at one
// time cover a nearly square part of the output, which reads the fewest operand bytes.
#pragma once

#include "kernels/grouped_gemm/sm90_config.h"

#ifdef __CUDACC__
#define YM_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define YM_HOST_DEVICE inline
#endif

namespace yardmaster::sm90 {

struct ScheduleShape {
  int experts = 0;
  int n_tiles = 0;         // columns of tiles
  int fixed_m_tiles = 0;   // wgrad: rows of tiles of every expert; 0: ceil(rows of the expert / kTileM)
  bool skip_empty = true;  // an expert without rows has no items (wgrad with beta 0: it has, to write zeros)
  int group_m = 8;
};

struct WorkItem {
  int expert = 0;
  int row_begin = 0;  // the expert's rows
  int row_end = 0;
  int m_tile = 0;
  int n_tile = 0;
  bool share_a = false;
};

class Schedule {
 public:
  // row_start: [experts + 1], ascending.
  YM_HOST_DEVICE Schedule(const ScheduleShape& shape, const int* row_start) : shape_(shape), row_start_(row_start) {
    LoadExpert();
  }

  // The tile of block `rank` in item `index`; false past the end. `index` must not decrease from call to call.
  YM_HOST_DEVICE bool Find(int index, int rank, WorkItem* item) {
    while (expert_ < shape_.experts && index >= first_ + items_) {
      first_ += items_;
      ++expert_;
      LoadExpert();
    }
    if (expert_ >= shape_.experts) return false;
    const int local = index - first_;
    const int pairs = m_tiles_ / 2;
    item->expert = expert_;
    item->row_begin = row_begin_;
    item->row_end = row_end_;
    if (local < pairs * shape_.n_tiles) {
      const int group_items = shape_.group_m * shape_.n_tiles;
      const int group = local / group_items;
      const int in_group = local - group * group_items;
      const int left = pairs - group * shape_.group_m;
      const int height = left < shape_.group_m ? left : shape_.group_m;
      item->n_tile = in_group / height;
      item->m_tile = 2 * (group * shape_.group_m + in_group - item->n_tile * height) + rank;
      item->share_a = false;
    } else {
      item->n_tile = 2 * (local - pairs * shape_.n_tiles) + rank;
      item->m_tile = m_tiles_ - 1;
      item->share_a = true;
    }
    return true;
  }

 private:
  YM_HOST_DEVICE void LoadExpert() {
    if (expert_ >= shape_.experts) return;
    row_begin_ = row_start_[expert_];
    row_end_ = row_start_[expert_ + 1];
    const int rows = row_end_ - row_begin_;
    m_tiles_ = shape_.fixed_m_tiles > 0 ? shape_.fixed_m_tiles : (rows + kTileM - 1) / kTileM;
    items_ = rows <= 0 && shape_.skip_empty ? 0 : (m_tiles_ / 2) * shape_.n_tiles + (m_tiles_ % 2) * ((shape_.n_tiles + 1) / 2);
  }

  ScheduleShape shape_;
  const int* row_start_;
  int expert_ = 0;
  int first_ = 0;  // items of the experts before
  int items_ = 0;  // items of this expert
  int m_tiles_ = 0;
  int row_begin_ = 0;
  int row_end_ = 0;
};

}  // namespace yardmaster::sm90
