// File: kernels/grouped_gemm/sm90_schedule.h
//
// The tiles of an expert, and how forward and dgrad deal them to the clusters of the persistent
// grid: in turn, item i to cluster i % clusters, numbered expert by expert. Their tiles cost nearly
// the same; those of wgrad do not, and are dealt by cost (sm90_deal.h). All follows from the row
// starts alone, so nothing has to be counted beforehand and every walk is deterministic. Runs on
// the host too, where it is tested.
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
  int tile_cost = 0;   // wgrad: what a tile costs beside its rows, in units of kRowUnit rows
  int cost_shift = 0;  // wgrad: costs are counted in units of 2^cost_shift (sm90_deal.h)
};

struct WorkItem {
  int expert = 0;
  int row_begin = 0;  // the expert's rows
  int row_end = 0;
  int m_group = 0;
  int n_begin = 0;  // forward, dgrad: a row of the whole matrix; wgrad: a column
  int n_size = 0;   // at least 1, at most a whole tile
};

// The items of one expert, up to kItemN along N.
template <int kItemN>
class ExpertItemsOf {
 public:
  YM_HOST_DEVICE explicit ExpertItemsOf(const ScheduleShape& shape) : shape_(shape) {}

  // row_start: [experts + 1], ascending.
  YM_HOST_DEVICE void Load(const int* row_start, int expert) {
    expert_ = expert;
    row_begin_ = row_start[expert];
    row_end_ = row_start[expert + 1];
    const int rows = row_end_ - row_begin_;
    n_tiles_ = ((shape_.ragged_n ? rows : shape_.n_extent) + kItemN - 1) / kItemN;
    count_ = rows <= 0 && shape_.skip_empty ? 0 : shape_.m_groups * n_tiles_;
  }

  YM_HOST_DEVICE int expert() const { return expert_; }
  YM_HOST_DEVICE int count() const { return count_; }

  YM_HOST_DEVICE WorkItem Item(int local) const {
    const int inner_tiles = shape_.ragged_n ? n_tiles_ : shape_.m_groups;
    const int outer_tiles = shape_.ragged_n ? shape_.m_groups : n_tiles_;
    const int group_items = shape_.group * outer_tiles;
    const int group = local / group_items;
    const int in_group = local - group * group_items;
    const int left = inner_tiles - group * shape_.group;
    const int height = left < shape_.group ? left : shape_.group;
    const int outer = in_group / height;
    const int inner = group * shape_.group + in_group - outer * height;
    WorkItem item;
    item.expert = expert_;
    item.row_begin = row_begin_;
    item.row_end = row_end_;
    if (shape_.ragged_n) {
      const int rows = row_end_ - row_begin_;
      const int begin = RowCut(rows, inner), end = RowCut(rows, inner + 1);
      item.m_group = outer;
      item.n_begin = row_begin_ + begin;
      item.n_size = (end < rows ? end : rows) - begin;
    } else {
      const int left_n = shape_.n_extent - outer * kItemN;
      item.m_group = inner;
      item.n_begin = outer * kItemN;
      item.n_size = left_n < kItemN ? left_n : kItemN;
    }
    return item;
  }

 private:
  // Where tile `i` begins.
  YM_HOST_DEVICE int RowCut(int rows, int i) const {
    const int units = (rows + kRowUnit - 1) / kRowUnit;
    const int whole = units / n_tiles_, rest = units - whole * n_tiles_;
    return kRowUnit * (i * whole + (i < rest ? i : rest));
  }

  ScheduleShape shape_;
  int expert_ = -1;
  int count_ = 0;
  int n_tiles_ = 0;
  int row_begin_ = 0;
  int row_end_ = 0;
};
using ExpertItems = ExpertItemsOf<kTileN>;

// All items in turn.
class Schedule {
 public:
  YM_HOST_DEVICE Schedule(const ScheduleShape& shape, const int* row_start)
      : experts_(shape.experts), row_start_(row_start), items_(shape) {}

  // False past the end. `index` must not decrease from call to call.
  YM_HOST_DEVICE bool Find(int index, WorkItem* item) {
    while (index >= first_ + items_.count()) {
      first_ += items_.count();
      if (items_.expert() + 1 >= experts_) return false;
      items_.Load(row_start_, items_.expert() + 1);
    }
    *item = items_.Item(index - first_);
    return true;
  }

 private:
  const int experts_;
  const int* const row_start_;
  ExpertItems items_;
  int first_ = 0;  // items of the experts before
};

}  // namespace yardmaster::sm90
