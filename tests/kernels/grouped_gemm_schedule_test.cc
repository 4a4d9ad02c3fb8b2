// File: tests/kernels/grouped_gemm_schedule_test.cc
#include <algorithm>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/grouped_gemm/sm90_schedule.h"
#include "tests/catch.h"
#include "tests/kernels/row_cover.h"

namespace yardmaster::sm90 {
namespace {

// All items, dealt to `clusters` walkers as the kernel does it.
std::vector<WorkItem> AllItems(const ScheduleShape& shape, const std::vector<int>& starts,
                               int clusters) {
  std::vector<std::pair<int, WorkItem>> dealt;
  for (int c = 0; c < clusters; ++c) {
    Schedule schedule(shape, starts.data());
    WorkItem item;
    for (int index = c; schedule.Find(index, &item); index += clusters)
      dealt.emplace_back(index, item);
  }
  std::sort(dealt.begin(), dealt.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<WorkItem> items;
  for (size_t i = 0; i < dealt.size(); ++i) {
    REQUIRE(dealt[i].first == static_cast<int>(i));
    items.push_back(dealt[i].second);
  }
  return items;
}

std::vector<int> RandomCounts(std::mt19937* random) {
  const int kCounts[] = {0,   0,   1,   31,  32,  33,  63,  64,   65,
                         127, 128, 129, 255, 256, 257, 509, 1021, 5003};
  std::vector<int> counts(1 + (*random)() % 20);
  for (int& c : counts) c = kCounts[(*random)() % (sizeof(kCounts) / sizeof(kCounts[0]))];
  return counts;
}

TEST_CASE("forward tiles cover each row of each expert once, for each group of M tiles") {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::vector<int> starts = RowStarts(RandomCounts(&random));
    ScheduleShape shape;
    shape.experts = static_cast<int>(starts.size()) - 1;
    shape.m_groups = 1 + random() % 9;
    shape.group = 1 + random() % 8;
    const int clusters = 1 + random() % 70;
    RowCover cover(starts, shape.m_groups);
    for (const WorkItem& item : AllItems(shape, starts, clusters)) {
      REQUIRE(item.n_size >= 1);
      REQUIRE(item.n_size <= kTileN);
      cover.Add(item);
    }
    cover.RequireOnce();
  }
}

TEST_CASE("an expert's forward tiles are as equal as the row unit allows") {
  for (int rows = 1; rows < 3000; ++rows) {
    const std::vector<int> starts = {7, 7 + rows};
    ScheduleShape shape;
    shape.experts = 1;
    shape.m_groups = 1;
    int smallest = kTileN + 1, largest = 0, tiles = 0;
    for (const WorkItem& item : AllItems(shape, starts, 1)) {
      const int padded = (item.n_size + kRowUnit - 1) / kRowUnit * kRowUnit;
      smallest = std::min(smallest, padded);
      largest = std::max(largest, padded);
      ++tiles;
    }
    REQUIRE(tiles == (rows + kTileN - 1) / kTileN);
    REQUIRE(largest - smallest <= kRowUnit);
  }
}

TEST_CASE(
    "wgrad tiles cover each expert's matrix once; empty experts only where zeros must be written") {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    const std::vector<int> starts = RowStarts(RandomCounts(&random));
    ScheduleShape shape;
    shape.experts = static_cast<int>(starts.size()) - 1;
    shape.ragged_n = false;
    shape.m_groups = 1 + random() % 9;
    shape.n_extent = 8 * (1 + random() % 200);
    shape.skip_empty = random() % 2 == 0;
    shape.group = 1 + random() % 8;
    std::set<std::tuple<int, int, int>> seen;
    for (const WorkItem& item : AllItems(shape, starts, 1 + random() % 70)) {
      REQUIRE(item.n_begin % kTileN == 0);
      REQUIRE(item.n_size == std::min(kTileN, shape.n_extent - item.n_begin));
      REQUIRE(seen.insert({item.expert, item.m_group, item.n_begin}).second);
    }
    const size_t per_expert =
        static_cast<size_t>(shape.m_groups) * ((shape.n_extent + kTileN - 1) / kTileN);
    size_t expected = 0;
    for (int e = 0; e < shape.experts; ++e) {
      if (starts[e + 1] > starts[e] || !shape.skip_empty) expected += per_expert;
    }
    REQUIRE(seen.size() == expected);
  }
}

TEST_CASE("the configuration uses the multiprocessors that are not left free") {
  REQUIRE(SelectConfig(GemmOp::kForward, false, 132, 0).clusters == 66);
  REQUIRE(SelectConfig(GemmOp::kForward, false, 132, 20).clusters == 56);
  REQUIRE(SelectConfig(GemmOp::kWgrad, false, 132, 21).clusters == 55);
  REQUIRE(SelectConfig(GemmOp::kDgrad, false, 132, 200).clusters == 1);
  REQUIRE(SelectConfig(GemmOp::kDgrad, false, 132, -5).clusters == 66);
  REQUIRE(SelectConfig(GemmOp::kWgrad, false, 1000, 0).clusters == kMaxClusters);
  REQUIRE(SelectConfig(GemmOp::kWgrad, true, 132, 0).tile_cost >
          SelectConfig(GemmOp::kWgrad, false, 132, 0).tile_cost);
}

}  // namespace
}  // namespace yardmaster::sm90
