#include "tools/bench_ops/ops/random_inputs.h"

#include <algorithm>
#include <cmath>

#include "src/base/philox.h"

namespace yardmaster {

std::vector<double> UniformValues(const BenchSizes& s, const char* what, int64_t n, double low, double high) {
  std::vector<double> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = low + (high - low) * PhiloxUniform(s.seed, StreamOf(what), i);
  return out;
}

std::vector<double> RandomExperts(const BenchSizes& s) {
  std::vector<double> idx;
  std::vector<std::pair<double, int64_t>> order(static_cast<size_t>(s.experts));
  for (int64_t t = 0; t < s.T(); ++t) {
    for (int64_t e = 0; e < s.experts; ++e) {
      const auto draw = static_cast<uint64_t>(t * s.experts + e);
      // Every third expert is half as wanted.
      order[static_cast<size_t>(e)] = {
          PhiloxUniform(s.seed, StreamOf("experts"), draw) * (e % 3 == 2 ? 2 : 1), e};
    }
    std::partial_sort(order.begin(), order.begin() + s.top_k, order.end());
    std::sort(order.begin(), order.begin() + s.top_k,
              [](const auto& a, const auto& b) { return a.second < b.second; });
    for (int64_t k = 0; k < s.top_k; ++k)
      idx.push_back(static_cast<double>(order[static_cast<size_t>(k)].second));
  }
  return idx;
}

ExpertRows RowsOfExperts(const BenchSizes& s, const std::vector<double>& idx) {
  ExpertRows rows;
  std::vector<int64_t> next(static_cast<size_t>(s.experts) + 1, 0);
  for (const double e : idx) ++next[static_cast<size_t>(e) + 1];
  for (size_t e = 1; e < next.size(); ++e) next[e] += next[e - 1];
  rows.offsets.assign(next.begin(), next.end());
  rows.source.resize(idx.size());
  for (size_t p = 0; p < idx.size(); ++p) {
    const int64_t row = next[static_cast<size_t>(idx[p])]++;
    rows.slot.push_back(static_cast<double>(row));
    rows.source[static_cast<size_t>(row)] = static_cast<double>(p);
  }
  return rows;
}

std::vector<double> RopeTable(int64_t positions, int64_t width) {
  std::vector<double> table;
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < width / 2; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(width));
      table.push_back(std::cos(angle));
      table.push_back(std::sin(angle));
    }
  }
  return table;
}

std::vector<double> Positions(const BenchSizes& s) {
  std::vector<double> positions;
  for (int64_t t = 0; t < s.T(); ++t) positions.push_back(static_cast<double>(t % s.S));
  return positions;
}

}  // namespace yardmaster
