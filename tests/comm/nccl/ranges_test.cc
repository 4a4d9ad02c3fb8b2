#include "src/comm/nccl/ranges.h"

#include "tests/catch.h"

namespace yardmaster {
namespace {

TEST_CASE("segments of every rank's range cover it once, and end with the longest range") {
  for (const std::vector<int64_t>& bounds :
       {std::vector<int64_t>{0, 0, 7, 7, 10}, {3, 8, 13}, {0, 0, 0}, {5, 5, 6}}) {
    int64_t longest = 0;
    for (size_t r = 0; r + 1 < bounds.size(); ++r)
      longest = std::max(longest, bounds[r + 1] - bounds[r]);
    CHECK(LongestRange(bounds) == longest);
    for (const int64_t segment : {1, 2, 3, 100}) {
      std::vector<int64_t> covered(bounds.size() - 1, 0);
      for (int64_t done = 0; done < LongestRange(bounds); done += segment) {
        for (size_t r = 0; r < covered.size(); ++r) {
          const int64_t n = LengthInSegment(bounds, static_cast<int>(r), done, segment);
          CHECK((0 <= n && n <= segment));
          if (n > 0) CHECK(covered[r] == done);
          covered[r] += n;
        }
      }
      for (size_t r = 0; r < covered.size(); ++r) CHECK(covered[r] == bounds[r + 1] - bounds[r]);
    }
  }
}

TEST_CASE("segments are whole runs of squares where one fits") {
  CHECK(SegmentBytes(kRunBytes) == kRunBytes);
  CHECK(SegmentBytes(2 * kRunBytes - 1) == kRunBytes);
  CHECK(SegmentBytes(kRunBytes - 1) == kRunBytes - 256);
  CHECK(SegmentBytes(255) == 0);
  for (const int64_t bytes : {int64_t{1} << 20, (int64_t{64} << 20) / 7, int64_t{123456789}}) {
    for (const int64_t width : {4, 8}) CHECK(SegmentBytes(bytes) / width % kSquaresRun == 0);
    CHECK(bytes - SegmentBytes(bytes) < kRunBytes);
  }
}

}  // namespace
}  // namespace yardmaster
