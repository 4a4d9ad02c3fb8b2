// File: tests/kernels/grouped_gemm_fp8_schedule_test.cc
#include <algorithm>
#include <random>
#include <vector>

#include "kernels/grouped_gemm_fp8/sm90_fp8_config.h"
#include "tests/catch.h"
#include "tests/kernels/row_cover.h"

namespace yardmaster::sm90fp8 {
namespace {

using sm90::RowStarts;
using sm90::WorkItem;

// The items of each cluster, as the kernel deals them.
std::vector<std::vector<WorkItem>> Dealt(const std::vector<int>& starts, int column_groups,
                                         int group, int clusters) {
  std::vector<std::vector<WorkItem>> dealt(clusters);
  for (int c = 0; c < clusters; ++c) {
    RowSchedule schedule(static_cast<int>(starts.size()) - 1, column_groups, group, clusters,
                         starts.data());
    WorkItem item;
    for (int index = c; schedule.Find(index, &item); index += clusters) {
      if (item.n_size > 0) dealt[c].push_back(item);
    }
  }
  return dealt;
}

TEST_CASE("FP8 rows: tiles cover each row of each expert once, for each group of columns") {
  const int kCounts[] = {0, 0, 1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 509, 1021, 5003};
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int> counts(1 + random() % 20);
    for (int& c : counts) c = kCounts[random() % (sizeof(kCounts) / sizeof(kCounts[0]))];
    const std::vector<int> starts = RowStarts(counts);
    const int column_groups = 1 + random() % 9;
    sm90::RowCover cover(starts, column_groups);
    for (const auto& items : Dealt(starts, column_groups, 1 + random() % 8, 1 + random() % 70)) {
      for (const WorkItem& item : items) {
        REQUIRE(item.n_size <= kTileRows);
        cover.Add(item);
      }
    }
    cover.RequireOnce();
  }
}

// DeepSeek-V3's gate+up on 66 clusters: 2048 tiles, 31 rounds and 2 tiles, which are cut into parts
// of 64 rows.
TEST_CASE("FP8 rows: a last round of few tiles is spread over more clusters") {
  int largest = 0, smallest = 1 << 30;
  for (const auto& items : Dealt(RowStarts(std::vector<int>(8, 4096)), 16, 8, 66)) {
    int rows = 0;
    for (const WorkItem& item : items) rows += item.n_size;
    largest = std::max(largest, rows);
    smallest = std::min(smallest, rows);
  }
  CHECK(smallest == 31 * 256);
  CHECK(largest == 31 * 256 + 64);
}

TEST_CASE("FP8 weight gradients: two warpgroups only where short tiles are added to what is there") {
  CHECK(WgradWarpgroups(32768, 32, true) == 2);
  CHECK(WgradWarpgroups(65536, 32, true) == 3);
  CHECK(WgradWarpgroups(32768, 8, true) == 3);
  CHECK(WgradWarpgroups(32768, 32, false) == 3);
  CHECK(WgradWarpgroups(0, 1, true) == 2);
  Config config;
  ChooseWgrad(32768, 8, 7168, true, 0, &config);
  CHECK(config.wgrad_warpgroups == 3);
  CHECK(config.group == 28);
  config = Config();
  ChooseWgrad(32768, 8, 7168, true, 2, &config);
  CHECK(config.wgrad_warpgroups == 2);
  CHECK(config.group == Config().group);
}

}  // namespace
}  // namespace yardmaster::sm90fp8
