// File: kernels/grouped_gemm/sm90_deal.h
//
// How wgrad deals its tiles to the clusters of the persistent grid: by cost. A tile of an expert of
// c rows costs c rows of the contraction and a constant for its stores; dealt in turn, one expert
// larger than the rest makes some clusters work 10 % longer than the mean.
//
// The items are ordered in runs of one expert (RunList), and dealt as a queue would be served whose
// next item goes to the cluster that is free first (Dealer, times taken from the costs): no cluster
// ends later than one item after another. Experts of more than 1.5 times the mean cost are heavy:
// their items come in small runs, spread between the others, so that arithmetic (heavy) and stores
// (light) overlap, and early enough that light items fill up the end.
//
// One warp works this out in every block, from the row starts in shared memory; on the host, where
// it is tested, one lane does. Whole numbers, fixed order: every block finds the same.
#pragma once

#include <cstdint>

#include "kernels/grouped_gemm/sm90_schedule.h"

namespace yardmaster::sm90 {

// Costs stay under 2^15 for each expert, so that sums over a run fit into 32 bits.
inline constexpr int kMaxRun = 1 << 14;
inline constexpr int kHeavyRun = 16;  // at least: 4 x 4 tiles share operands in L2
inline constexpr int kHeavyRuns =
    64;  // about as many: each takes the dealing warp some microseconds
inline int CostShift(int64_t rows) {
  int shift = 0;
  while (rows / kRowUnit >> shift >= 1 << 15) ++shift;
  return shift;
}

struct OneLane {
  static constexpr int kLanes = 1;
  static int Lane() { return 0; }
  static int Sum(int v) { return v; }
  static int Min(int v) { return v; }
  static int Max(int v) { return v; }
  static int From(int v, int) { return v; }
  // How many lanes before this one, and how many in all, have the flag.
  static int Rank(bool flag, int* all) { return *all = flag, 0; }
};

#ifdef __CUDACC__
struct WarpLanes {
  static constexpr int kLanes = 32;
  __device__ __forceinline__ static int Lane() { return threadIdx.x % 32; }
  __device__ __forceinline__ static int Sum(int v) { return __reduce_add_sync(~0u, v); }
  __device__ __forceinline__ static int Min(int v) { return __reduce_min_sync(~0u, v); }
  __device__ __forceinline__ static int Max(int v) { return __reduce_max_sync(~0u, v); }
  __device__ __forceinline__ static int From(int v, int lane) { return __shfl_sync(~0u, v, lane); }
  __device__ __forceinline__ static int Rank(bool flag, int* all) {
    const unsigned flags = __ballot_sync(~0u, flag);
    *all = __popc(flags);
    return __popc(flags & ((1u << Lane()) - 1));
  }
};
#endif

struct Run {
  int expert = 0;
  int first = 0;  // of the expert's items
  int count = 0;  // 1 to kMaxRun
  int cost = 0;   // of each, at least 1
};

// The order of the items, up to kItemN along N: runs of one expert.
template <class Lanes, int kItemN = kTileN>
class RunList {
 public:
  YM_HOST_DEVICE RunList(const ScheduleShape& shape, const int* row_start, int clusters)
      : shape_(shape), row_start_(row_start) {
    items_ = shape.m_groups * ((shape.n_extent + kItemN - 1) / kItemN);
    int experts = 0, cost = 0;
    for (int e = Lanes::Lane(); e < shape.experts; e += Lanes::kLanes) {
      experts += HasItems(e);
      cost += HasItems(e) ? Cost(e) : 0;
    }
    experts_ = Lanes::Sum(experts);
    cost_ = Lanes::Sum(cost);
    int heavy = 0, heavy_cost = 0, largest = 0;
    for (int e = Lanes::Lane(); e < shape.experts; e += Lanes::kLanes) {
      if (!Heavy(e)) continue;
      ++heavy;
      heavy_cost += Cost(e);
      largest = Cost(e) > largest ? Cost(e) : largest;
    }
    heavy = Lanes::Sum(heavy);
    const int light_cost = cost_ - Lanes::Sum(heavy_cost);
    largest = Lanes::Max(largest);
    heavy_items_ = int64_t{heavy} * items_;
    light_items_ = int64_t{experts_ - heavy} * items_;
    if (heavy > 0) {
      // Behind the last heavy item: as many light ones as the other clusters do meanwhile.
      const int64_t rest = int64_t{clusters} * largest * (experts_ - heavy) / light_cost;
      span_ = rest < light_items_ / 2 ? light_items_ - rest : light_items_ / 2;
      if (heavy_items_ > kHeavyRun * kHeavyRuns)
        heavy_run_ = Limit((heavy_items_ + kHeavyRuns - 1) / kHeavyRuns);
      light_run_ = Limit(heavy_run_ * span_ / heavy_items_);
    }
    FindNext(&heavy_, true);
    FindNext(&light_, false);
  }

  YM_HOST_DEVICE bool Next(Run* run) {
    const bool heavy_left = heavy_.done < heavy_items_, light_left = light_.done < light_items_;
    if (!heavy_left && !light_left) return false;
    const bool heavy =
        heavy_left && (!light_left || heavy_.done * span_ <= light_.done * heavy_items_);
    if (heavy) {
      Take(&heavy_, true, heavy_run_, run);
    } else {
      Take(&light_, false, heavy_left ? light_run_ : kMaxRun, run);
    }
    return true;
  }

 private:
  struct Cursor {
    int expert = -1;
    int first = 0;
    int64_t done = 0;
  };

  YM_HOST_DEVICE static int Limit(int64_t run) {
    return run < 1 ? 1 : run < kMaxRun ? static_cast<int>(run) : kMaxRun;
  }
  YM_HOST_DEVICE int Rows(int e) const { return row_start_[e + 1] - row_start_[e]; }
  YM_HOST_DEVICE bool HasItems(int e) const { return Rows(e) > 0 || !shape_.skip_empty; }
  YM_HOST_DEVICE int Cost(int e) const {
    const int cost =
        (((Rows(e) + kRowUnit - 1) / kRowUnit) + shape_.tile_cost) >> shape_.cost_shift;
    return cost < 1 ? 1 : cost;
  }
  YM_HOST_DEVICE bool Heavy(int e) const {
    return HasItems(e) && int64_t{2} * Cost(e) * experts_ > int64_t{3} * cost_;
  }

  YM_HOST_DEVICE void FindNext(Cursor* cursor, bool heavy) const {
    cursor->first = 0;
    do {
      ++cursor->expert;
    } while (cursor->expert < shape_.experts &&
             (!HasItems(cursor->expert) || Heavy(cursor->expert) != heavy));
  }

  YM_HOST_DEVICE void Take(Cursor* cursor, bool heavy, int most, Run* run) const {
    const int left = items_ - cursor->first;
    run->expert = cursor->expert;
    run->first = cursor->first;
    run->count = left < most ? left : most;
    run->cost = Cost(cursor->expert);
    cursor->first += run->count;
    cursor->done += run->count;
    if (cursor->first == items_) FindNext(cursor, heavy);
  }

  const ScheduleShape shape_;
  const int* const row_start_;
  int items_ = 0;  // of each expert that has any
  int experts_ = 0, cost_ = 0;
  int64_t heavy_items_ = 0, light_items_ = 0;
  int64_t span_ = 0;  // light items before the last heavy one
  int heavy_run_ = kHeavyRun, light_run_ = kMaxRun;
  Cursor heavy_, light_;
};

// Which items of a run belong to cluster `own`. Cluster i * kLanes + lane is kept in load_[i] of a
// lane.
template <class Lanes>
class Dealer {
 public:
  YM_HOST_DEVICE Dealer(int clusters, int own) : clusters_(clusters), own_(own) {}

  // Returns how many items of the run are this cluster's.
  YM_HOST_DEVICE int Deal(int count, int cost) {
    int sum = 0, most = 0;
    for (int i = 0; i < kPerLane; ++i) {
      sum += load_[i];
      most = load_[i] > most ? load_[i] : most;
    }
    // Begins before `low` are at most count, before `high` more.
    const int mean = (Lanes::Sum(sum) + count * cost) / clusters_;
    int low = mean - cost, high = mean + 1;
    if (low < Lanes::Max(most)) low = 0;
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      (BeginsBefore(middle, cost) <= count ? low : high) = middle;
    }
    // What is left begins at `low`, in the order of the clusters.
    int left = count - BeginsBefore(low, cost);
    int own_load = 0, own_taken = 0, taken[kPerLane];
    for (int i = 0; i < kPerLane; ++i) {
      const int items = Items(i, low, cost);
      int level = 0;
      const bool at_level = Cluster(i) < clusters_ && load_[i] + items * cost == low;
      const int rank = Lanes::Rank(at_level, &level);
      taken[i] = items + (at_level && rank < left);
      left -= level < left ? level : left;
      if (i == own_ / Lanes::kLanes) {
        own_load = Lanes::From(load_[i], own_ % Lanes::kLanes);
        own_taken = Lanes::From(taken[i], own_ % Lanes::kLanes);
      }
    }
    int least = 1 << 30;
    for (int i = 0; i < kPerLane; ++i) {
      // Items of that cluster that begin before this cluster's first.
      const int ahead = own_load - load_[i];
      before_[i] = Cluster(i) >= clusters_ ? -(1 << 30)
                   : Cluster(i) < own_     ? FloorDiv(ahead, cost) + 1
                                           : -FloorDiv(-ahead, cost);
      load_[i] += taken[i] * cost;
      if (Cluster(i) < clusters_ && load_[i] < least) least = load_[i];
    }
    least = Lanes::Min(least);
    for (int i = 0; i < kPerLane; ++i) load_[i] -= Cluster(i) < clusters_ ? least : 0;
    return own_taken;
  }

  // Which item of the run, ordered by their begin, is this cluster's j-th.
  YM_HOST_DEVICE int Index(int j) const {
    int index = 0;
    for (int i = 0; i < kPerLane; ++i) index += before_[i] + j > 0 ? before_[i] + j : 0;
    return Lanes::Sum(index);
  }

 private:
  static constexpr int kPerLane = kMaxClusters / Lanes::kLanes;

  YM_HOST_DEVICE static int Cluster(int i) { return i * Lanes::kLanes + Lanes::Lane(); }
  YM_HOST_DEVICE static int FloorDiv(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

  // Items of the lane's i-th cluster that begin before `time`.
  YM_HOST_DEVICE int Items(int i, int time, int cost) const {
    return Cluster(i) < clusters_ && load_[i] < time ? (time - load_[i] + cost - 1) / cost : 0;
  }
  YM_HOST_DEVICE int BeginsBefore(int time, int cost) const {
    int items = 0;
    for (int i = 0; i < kPerLane; ++i) items += Items(i, time, cost);
    return Lanes::Sum(items);
  }

  const int clusters_;
  const int own_;
  int load_[kPerLane] = {};  // beyond the least loaded cluster
  int before_[kPerLane] = {};
};

}  // namespace yardmaster::sm90
