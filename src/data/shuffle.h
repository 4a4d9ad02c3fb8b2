// File: src/data/shuffle.h
//
// Two permutations of [0, count), each a pure function of (seed, stream): the same on every rank, with no
// state.
#pragma once

#include <bit>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "src/base/philox.h"

namespace yardmaster {

// Uniform in [0, n) from value `index` of the stream. The bias is below n / 2^64.
inline int64_t PhiloxBelow(uint64_t seed, uint64_t stream, uint64_t index, int64_t n) {
  const auto r = Philox4x32(seed, stream, index);
  const unsigned __int128 wide = uint64_t{r[0]} << 32 | r[1];
  return static_cast<int64_t>(wide * static_cast<uint64_t>(n) >> 64);
}

// Fisher-Yates: 8 bytes an element.
inline std::vector<int64_t> ShuffledOrder(int64_t count, uint64_t seed, uint64_t stream) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = count - 1; i > 0; --i) {
    std::swap(order[static_cast<size_t>(i)],
              order[static_cast<size_t>(PhiloxBelow(seed, stream, static_cast<uint64_t>(i), i + 1))]);
  }
  return order;
}

// Where a shuffle sends one index, without memory: samples are too many to list them on every rank (15 T
// tokens are 3.6 billion samples of 4096). A Feistel network permutes the smallest power of four that holds
// count; an index that lands outside [0, count) is sent on until it lands inside (cycle walking: fewer than 4
// rounds trips on average), which is a permutation of [0, count) again.
inline int64_t ShuffledIndex(int64_t index, int64_t count, uint64_t seed, uint64_t stream) {
  constexpr uint64_t kRounds = 8;
  if (count < 2) return index;
  const int half_bits = (std::bit_width(static_cast<uint64_t>(count - 1)) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t x = static_cast<uint64_t>(index);
  do {
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (Philox4x32(seed, stream, round << 32 | right)[0] & mask);
      left = right, right = mixed;
    }
    x = left << half_bits | right;
  } while (x >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(x);
}

}  // namespace yardmaster
