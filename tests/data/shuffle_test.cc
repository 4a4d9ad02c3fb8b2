#include "src/data/shuffle.h"

#include <algorithm>

#include "tests/catch.h"

namespace yardmaster {
namespace {

std::vector<int64_t> Indices(int64_t count, uint64_t seed, uint64_t stream) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(ShuffledIndex(i, count, seed, stream));
  return out;
}

bool IsPermutation(std::vector<int64_t> order) {
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("both shuffles are permutations for every count") {
  for (int64_t count = 0; count <= 260; ++count) {
    CAPTURE(count);
    CHECK(IsPermutation(ShuffledOrder(count, 5, 9)));
    CHECK(IsPermutation(Indices(count, 5, 9)));
  }
  CHECK(IsPermutation(ShuffledOrder(100'003, 1, 2)));
  CHECK(IsPermutation(Indices(100'003, 1, 2)));
}

TEST_CASE("shuffles depend on seed and stream, and on nothing else") {
  CHECK(ShuffledOrder(100, 1, 2) == ShuffledOrder(100, 1, 2));
  CHECK(ShuffledOrder(100, 1, 2) != ShuffledOrder(100, 1, 3));
  CHECK(ShuffledOrder(100, 1, 2) != ShuffledOrder(100, 2, 2));
  CHECK(Indices(100, 1, 2) == Indices(100, 1, 2));
  CHECK(Indices(100, 1, 2) != Indices(100, 1, 3));
  CHECK(Indices(100, 1, 2) != Indices(100, 2, 2));
}

TEST_CASE("indices beyond 32 bits") {
  const int64_t count = (int64_t{1} << 40) + 12345;
  std::vector<int64_t> seen;
  for (int64_t i = 0; i < 1000; ++i) seen.push_back(ShuffledIndex(count - 1 - i, count, 3, 4));
  for (const int64_t index : seen) CHECK((index >= 0 && index < count));
  CHECK(*std::max_element(seen.begin(), seen.end()) > int64_t{1} << 32);
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  CHECK(PhiloxBelow(1, 2, 3, int64_t{1} << 62) < int64_t{1} << 62);
}

TEST_CASE("every element comes to every place about equally often") {
  constexpr int kCount = 10, kTrials = 20'000;
  std::array<std::array<int, kCount>, kCount> order{}, index{};
  for (uint64_t stream = 0; stream < kTrials; ++stream) {
    const auto shuffled = ShuffledOrder(kCount, 11, stream);
    for (size_t i = 0; i < kCount; ++i) {
      ++order[i][static_cast<size_t>(shuffled[i])];
      ++index[i][static_cast<size_t>(ShuffledIndex(static_cast<int64_t>(i), kCount, 11, stream))];
    }
  }
  // 2000 expected, standard deviation 42; the streams are fixed, so this either holds or does not.
  for (size_t i = 0; i < kCount; ++i) {
    for (size_t j = 0; j < kCount; ++j) {
      CAPTURE(i, j);
      CHECK(std::abs(order[i][j] - 2000) < 210);
      CHECK(std::abs(index[i][j] - 2000) < 210);
    }
  }
}

// Checkpoints hold a sample index: another order for the same seed would change what a resumed run trains on.
// The numbers are from an independent implementation in Python.
TEST_CASE("the orders are those of earlier versions") {
  CHECK(ShuffledOrder(10, 1234, 77) == std::vector<int64_t>{8, 9, 1, 3, 2, 7, 5, 0, 4, 6});
  CHECK(Indices(10, 1234, 77) == std::vector<int64_t>{9, 7, 2, 4, 0, 8, 5, 1, 6, 3});
}

}  // namespace yardmaster
