// File: tests/kernels/grouped_gemm_deal_test.cc
#include <algorithm>
#include <numeric>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "kernels/grouped_gemm/sm90_deal.h"
#include "tests/catch.h"
#include "tests/kernels/row_cover.h"

namespace yardmaster::sm90 {
namespace {

using Free = std::priority_queue<std::pair<int64_t, int>, std::vector<std::pair<int64_t, int>>,
                                 std::greater<>>;  // (time, cluster)

ScheduleShape WgradShape(int experts, int n, int k, bool skip_empty, int tile_cost, int64_t rows) {
  ScheduleShape shape;
  shape.experts = experts;
  shape.ragged_n = false;
  shape.m_groups = (n + kCluster * kTileM - 1) / (kCluster * kTileM);
  shape.n_extent = k;
  shape.skip_empty = skip_empty;
  shape.group = 4;
  shape.tile_cost = tile_cost;
  shape.cost_shift = CostShift(rows);
  return shape;
}

std::vector<Run> AllRuns(const ScheduleShape& shape, const std::vector<int>& starts, int clusters) {
  RunList<OneLane> list(shape, starts.data(), clusters);
  std::vector<Run> runs;
  for (Run run; list.Next(&run);) runs.push_back(run);
  return runs;
}

// Per cluster the (run, item) pairs that it deals itself.
std::vector<std::vector<std::pair<int, int>>> DealAll(const std::vector<Run>& runs, int clusters) {
  std::vector<std::vector<std::pair<int, int>>> dealt(clusters);
  for (int c = 0; c < clusters; ++c) {
    Dealer<OneLane> dealer(clusters, c);
    for (size_t r = 0; r < runs.size(); ++r) {
      const int count = dealer.Deal(runs[r].count, runs[r].cost);
      for (int j = 0; j < count; ++j) dealt[c].emplace_back(r, dealer.Index(j));
    }
  }
  return dealt;
}

// The plain statement of the rule: the next item goes to the cluster that is free first.
std::vector<std::vector<std::pair<int, int>>> ServeQueue(const std::vector<Run>& runs,
                                                         int clusters) {
  std::vector<std::vector<std::pair<int, int>>> dealt(clusters);
  Free free;
  for (int c = 0; c < clusters; ++c) free.emplace(0, c);
  for (size_t r = 0; r < runs.size(); ++r) {
    for (int i = 0; i < runs[r].count; ++i) {
      const auto [time, c] = free.top();
      free.pop();
      dealt[c].emplace_back(r, i);
      free.emplace(time + runs[r].cost, c);
    }
  }
  return dealt;
}

std::vector<int64_t> Loads(const std::vector<Run>& runs,
                           const std::vector<std::vector<std::pair<int, int>>>& dealt) {
  std::vector<int64_t> loads;
  for (const auto& items : dealt) {
    int64_t load = 0;
    for (const auto& item : items) load += runs[item.first].cost;
    loads.push_back(load);
  }
  return loads;
}

TEST_CASE("dealing by cost serves a queue: each item to the cluster that is free first") {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int clusters = 1 + random() % kMaxClusters;
    std::vector<Run> runs(1 + random() % 12);
    for (Run& run : runs) {
      run.count = 1 + random() % (random() % 2 ? 20 : 700);
      run.cost = 1 + random() % (random() % 2 ? 5 : 9000);
    }
    REQUIRE(DealAll(runs, clusters) == ServeQueue(runs, clusters));
  }
}

TEST_CASE("the runs hold each item of each expert once") {
  std::mt19937 random(2);
  const int kCounts[] = {0, 0, 1, 15, 16, 17, 63, 64, 65, 129, 500, 1021, 5003, 40000};
  for (int round = 0; round < 300; ++round) {
    std::vector<int> counts(1 + random() % 40);
    for (int& c : counts) c = kCounts[random() % (sizeof(kCounts) / sizeof(kCounts[0]))];
    const std::vector<int> starts = RowStarts(counts);
    const ScheduleShape shape =
        WgradShape(static_cast<int>(counts.size()), 8 * (1 + random() % 900),
                   8 * (1 + random() % 900), random() % 2 == 0, random() % 20, starts.back());
    const int items = shape.m_groups * ((shape.n_extent + kTileN - 1) / kTileN);
    std::vector<std::vector<int>> seen(counts.size(), std::vector<int>(items, 0));
    for (const Run& run : AllRuns(shape, starts, 1 + random() % 70)) {
      REQUIRE(run.count >= 1);
      REQUIRE(run.count <= kMaxRun);
      REQUIRE(run.cost >= 1);
      for (int i = 0; i < run.count; ++i) ++seen[run.expert].at(run.first + i);
    }
    for (size_t e = 0; e < counts.size(); ++e) {
      const int expected = counts[e] > 0 || !shape.skip_empty;
      REQUIRE(std::count(seen[e].begin(), seen[e].end(), expected) == items);
    }
  }
}

TEST_CASE("items of 192 cover N once for each group of M tiles") {
  constexpr int kItemN = 192;
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const int n = 16 * (1 + random() % 400), m = 16 * (1 + random() % 400);
    const std::vector<int> starts = {0, 128, 128, 1152};
    const ScheduleShape shape = WgradShape(3, m, n, true, 4, starts.back());
    std::vector<std::vector<int>> seen(3, std::vector<int>(shape.m_groups * n, 0));
    RunList<OneLane, kItemN> list(shape, starts.data(), 66);
    ExpertItemsOf<kItemN> items(shape);
    for (Run run; list.Next(&run);) {
      items.Load(starts.data(), run.expert);
      for (int i = run.first; i < run.first + run.count; ++i) {
        const WorkItem item = items.Item(i);
        REQUIRE(item.n_size >= 1);
        REQUIRE(item.n_size <= kItemN);
        for (int j = 0; j < item.n_size; ++j)
          ++seen[item.expert].at(item.m_group * n + item.n_begin + j);
      }
    }
    for (int e = 0; e < 3; ++e)
      REQUIRE(std::count(seen[e].begin(), seen[e].end(), e == 1 ? 0 : 1) == shape.m_groups * n);
  }
}

// The rows of `experts` experts of which one has `skew` times the mean.
std::vector<int> Skewed(int experts, int rows, int skew) {
  std::vector<int> counts(experts, rows / experts * (experts - skew) / (experts - 1));
  for (int e = 0; e < experts; ++e) counts[e] += (e * 37 % 11 - 5) * counts[e] / 60;
  counts[experts / 3] = 0;
  counts[experts / 3] = rows - std::accumulate(counts.begin(), counts.end(), 0);
  return counts;
}

TEST_CASE("one expert of several times the mean leaves the clusters evenly loaded") {
  const int kClusters = 66;
  for (const auto& [n, k] : {std::pair{4096, 7168}, std::pair{7168, 2048}}) {
    for (const auto& [experts, skew] : {std::pair{8, 4}, std::pair{32, 4}, std::pair{32, 8}}) {
      const std::vector<int> starts = RowStarts(Skewed(experts, 32768, skew));
      const ScheduleShape shape = WgradShape(experts, n, k, true, 6, 32768);
      const std::vector<Run> runs = AllRuns(shape, starts, kClusters);
      const std::vector<int64_t> loads = Loads(runs, DealAll(runs, kClusters));
      const double mean =
          static_cast<double>(std::accumulate(loads.begin(), loads.end(), int64_t{0})) / kClusters;
      CAPTURE(n, experts, skew);
      REQUIRE(*std::max_element(loads.begin(), loads.end()) < 1.02 * mean);
    }
  }
}

TEST_CASE("heavy items are spread between the light ones, and light ones come last") {
  const std::vector<int> starts = RowStarts(Skewed(32, 32768, 8));
  const ScheduleShape shape = WgradShape(32, 4096, 7168, true, 16, 32768);
  const std::vector<Run> runs = AllRuns(shape, starts, 66);
  const int heavy = 32 / 3;
  REQUIRE(runs.front().expert == heavy);
  REQUIRE(runs.back().expert != heavy);
  int longest = 0, since = 0;
  bool done = false;
  int left = 448;
  for (const Run& run : runs) {
    if (run.expert == heavy) {
      REQUIRE(run.count <= kHeavyRun);
      left -= run.count;
      done = left == 0;
      since = 0;
    } else if (!done) {
      since += run.count;
      longest = std::max(longest, since);
    }
  }
  REQUIRE(done);
  // 28 runs of heavy items over 31 x 448 light ones.
  REQUIRE(longest < 2 * 31 * 448 / 28);
}

TEST_CASE("equal experts are dealt one after the other, in turn") {
  const std::vector<int> starts = RowStarts(std::vector<int>(4, 512));
  const ScheduleShape shape = WgradShape(4, 1024, 1024, true, 6, 2048);
  const std::vector<Run> runs = AllRuns(shape, starts, 5);
  REQUIRE(runs.size() == 4);
  int index = 0;
  const auto dealt = DealAll(runs, 5);
  for (int e = 0; e < 4; ++e) {
    REQUIRE(runs[e].expert == e);
    for (int i = 0; i < 16; ++i, ++index)
      REQUIRE(dealt[index % 5].at(index / 5) == std::pair{e, i});
  }
}

TEST_CASE("costs of very many rows stay in range") {
  REQUIRE(CostShift(32768) == 0);
  REQUIRE(CostShift((int64_t{1} << 31) - 1) == 12);
  const std::vector<int> starts = {0, 2000000000, 2000000000, 2147480000};
  const ScheduleShape shape = WgradShape(3, 65536, 65536, false, 16, starts.back());
  const std::vector<Run> runs = AllRuns(shape, starts, 66);
  for (const Run& run : runs) REQUIRE(run.cost < (1 << 15) + 16);
  const std::vector<int64_t> loads = Loads(runs, ServeQueue(runs, 66));
  Dealer<OneLane> dealer(66, 17);
  int64_t load = 0;
  for (const Run& run : runs) load += int64_t{dealer.Deal(run.count, run.cost)} * run.cost;
  REQUIRE(load == loads[17]);
}

}  // namespace
}  // namespace yardmaster::sm90
