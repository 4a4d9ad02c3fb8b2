// File: kernels/grouped_gemm/sm90_schedule.h
//
// Which tile a block computes next. The persistent grid deals work items to clusters in turn: item
// i belongs to cluster i % clusters. Items are numbered expert by expert, from the row starts
// alone, so nothing has to be counted beforehand and every walk is deterministic. Runs on the host
// too, where it is tested.
//
// An item is one N tile times one M tile for each block of the cluster, the M tiles side by side:
// the blocks share the N operand. The ragged rows lie along N (forward, dgrad) and are cut evenly:
// an expert of c rows has ceil(c / 256) tiles whose sizes are as equal as multiples of kRowUnit can
// be, so that no tile is a narrow rest and nearly no row is multiplied in vain. In wgrad N is K,
// cut at multiples of 256. Order within an expert: groups of `group` inner tiles; in a group one
// outer tile after the other. So the clusters at work at one time cover a nearly square part of the
// output, which reads the fewest operand bytes. Inner tiles are the rows in forward and dgrad, the
// cluster's M tiles in wgrad.
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
  int m_groups = 0;      // M tiles / blocks of a cluster, rounded up
  bool ragged_n = true;  // forward, dgrad: rows along N; wgrad: rows along the contraction
  int n_extent = 0;      // wgrad: K
  bool skip_empty =
      true;  // an expert without rows has no items (wgrad with beta 0: it has, to write zeros)
  int group = 8;
};

struct WorkItem {
  int expert = 0;
  int row_begin = 0;  // the expert's rows
  int row_end = 0;
  int m_group = 0;
  int n_begin = 0;  // forward, dgrad: a row of the whole matrix; wgrad: a column
  int n_size = 0;   // 1 to kTileN
};

class Schedule {
 public:
  // row_start: [experts + 1], ascending.
  YM_HOST_DEVICE Schedule(const ScheduleShape& shape, const int* row_start)
      : shape_(shape), row_start_(row_start) {
    LoadExpert();
  }

  // False past the end. `index` must not decrease from call to call.
  YM_HOST_DEVICE bool Find(int index, WorkItem* item) {
    while (expert_ < shape_.experts && index >= first_ + items_) {
      first_ += items_;
      ++expert_;
      LoadExpert();
    }
    if (expert_ >= shape_.experts) return false;
    const int local = index - first_;
    const int inner_tiles = shape_.ragged_n ? n_tiles_ : shape_.m_groups;
    const int outer_tiles = shape_.ragged_n ? shape_.m_groups : n_tiles_;
    const int group_items = shape_.group * outer_tiles;
    const int group = local / group_items;
    const int in_group = local - group * group_items;
    const int left = inner_tiles - group * shape_.group;
    const int height = left < shape_.group ? left : shape_.group;
    const int outer = in_group / height;
    const int inner = group * shape_.group + in_group - outer * height;
    item->expert = expert_;
    item->row_begin = row_begin_;
    item->row_end = row_end_;
    if (shape_.ragged_n) {
      const int rows = row_end_ - row_begin_;
      const int begin = RowCut(rows, inner), end = RowCut(rows, inner + 1);
      item->m_group = outer;
      item->n_begin = row_begin_ + begin;
      item->n_size = (end < rows ? end : rows) - begin;
    } else {
      item->m_group = inner;
      item->n_begin = outer * kTileN;
      item->n_size =
          shape_.n_extent - item->n_begin < kTileN ? shape_.n_extent - item->n_begin : kTileN;
    }
    return true;
  }

 private:
  YM_HOST_DEVICE void LoadExpert() {
    if (expert_ >= shape_.experts) return;
    row_begin_ = row_start_[expert_];
    row_end_ = row_start_[expert_ + 1];
    const int rows = row_end_ - row_begin_;
    n_tiles_ = ((shape_.ragged_n ? rows : shape_.n_extent) + kTileN - 1) / kTileN;
    items_ = rows <= 0 && shape_.skip_empty ? 0 : shape_.m_groups * n_tiles_;
  }

  // Where tile `i` of the expert begins.
  YM_HOST_DEVICE int RowCut(int rows, int i) const {
    const int units = (rows + kRowUnit - 1) / kRowUnit;
    const int whole = units / n_tiles_, rest = units - whole * n_tiles_;
    return kRowUnit * (i * whole + (i < rest ? i : rest));
  }

  ScheduleShape shape_;
  const int* row_start_;
  int expert_ = 0;
  int first_ = 0;  // items of the experts before
  int items_ = 0;  // items of this expert
  int n_tiles_ = 0;
  int row_begin_ = 0;
  int row_end_ = 0;
};

}  // namespace yardmaster::sm90
