// File: src/comm/nccl/ranges.h
//
// The ranges of a tensor that belong to the ranks of a group (bounds as of
// Communicator::ReduceScatterSum), passed in segments: a range's n-th segment is its elements from
// n * segment on, at most `segment` of them. Segments are whole runs of squares (Communicator::
// ReduceScatterSumAndSquares), so that none is cut.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/comm/communicator.h"

namespace yardmaster {

inline int64_t LongestRange(const std::vector<int64_t>& bounds) {
  int64_t longest = 0;
  for (size_t r = 0; r + 1 < bounds.size(); ++r)
    longest = std::max(longest, bounds[r + 1] - bounds[r]);
  return longest;
}

// Elements of rank r's range in the segment that begins at `done`.
inline int64_t LengthInSegment(const std::vector<int64_t>& bounds, int r, int64_t done,
                               int64_t segment) {
  const auto i = static_cast<size_t>(r);
  return std::clamp<int64_t>(bounds[i + 1] - bounds[i] - done, 0, segment);
}

// Bytes of whole runs of any type of at most 8 bytes.
inline constexpr int64_t kRunBytes = kSquaresRun * int64_t{sizeof(double)};

// Bytes of a segment in `bytes` of memory: whole runs where one fits, else lines of 256 bytes.
inline int64_t SegmentBytes(int64_t bytes) {
  const int64_t unit = bytes >= kRunBytes ? kRunBytes : 256;
  return bytes / unit * unit;
}

}  // namespace yardmaster
