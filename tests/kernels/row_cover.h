// What the tests of tile schedules share: where experts' rows begin, and whether tiles cover them.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "kernels/grouped_gemm/sm90_schedule.h"
#include "tests/catch.h"

namespace yardmaster::sm90 {

inline std::vector<int> RowStarts(const std::vector<int>& counts) {
  std::vector<int> starts = {0};
  for (int c : counts) starts.push_back(starts.back() + c);
  return starts;
}

// The ranges of rows that items take, by expert and M group.
class RowCover {
 public:
  explicit RowCover(const std::vector<int>& starts, int m_groups) : starts_(starts), m_groups_(m_groups) {}

  void Add(const WorkItem& item) {
    REQUIRE(item.row_begin == starts_[item.expert]);
    REQUIRE(item.row_end == starts_[item.expert + 1]);
    REQUIRE(item.m_group < m_groups_);
    ranges_[{item.expert, item.m_group}].emplace_back(item.n_begin, item.n_size);
  }

  // Each row of each expert once, for each M group.
  void RequireOnce() {
    for (int e = 0; e + 1 < static_cast<int>(starts_.size()); ++e) {
      for (int m = 0; m < m_groups_; ++m) {
        std::vector<std::pair<int, int>>& ranges = ranges_[{e, m}];
        std::sort(ranges.begin(), ranges.end());
        int at = starts_[e];
        for (const auto& [begin, size] : ranges) {
          REQUIRE(begin == at);
          at += size;
        }
        REQUIRE(at == starts_[e + 1]);
      }
    }
  }

 private:
  const std::vector<int>& starts_;
  int m_groups_;
  std::map<std::pair<int, int>, std::vector<std::pair<int, int>>> ranges_;
};

}  // namespace yardmaster::sm90
