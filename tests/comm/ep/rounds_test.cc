#include "src/comm/ep/rounds.h"

#include "src/base/philox.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

TEST_CASE("whole experts as long as they fit, in order") {
  CHECK(CutRounds({}, 0, 4).empty());
  CHECK(CutRounds({0, 0}, 0, 0).empty());
  CHECK(CutRounds({2, 0, 2, 1}, 8, 4) == std::vector<Round>{{{8, 0, 2}, {10, 0, 2}}, {{11, 0, 1}}});
  CHECK(CutRounds({3, 2, 2}, 0, 4) == std::vector<Round>{{{0, 0, 3}}, {{1, 0, 2}, {2, 0, 2}}});
}

TEST_CASE("an expert beyond the window goes in chunks") {
  CHECK(CutRounds({9}, 0, 4) == std::vector<Round>{{{0, 0, 4}}, {{0, 4, 8}}, {{0, 8, 9}}});
  // It fills up the round before it, and its last chunk shares its round.
  CHECK(CutRounds({1, 6, 1}, 0, 4) == std::vector<Round>{{{0, 0, 1}, {1, 0, 3}}, {{1, 3, 6}, {2, 0, 1}}});
}

TEST_CASE("every row once, no window exceeded, whole experts whole") {
  for (uint64_t i = 0; i < 300; ++i) {
    const auto draw = [&](uint64_t j, int64_t n) {
      return static_cast<int64_t>(PhiloxUniform(1, i, j) * static_cast<double>(n));
    };
    std::vector<int64_t> rows(static_cast<size_t>(1 + draw(0, 9)));
    for (size_t l = 0; l < rows.size(); ++l) rows[l] = draw(l + 2, 20);
    const int64_t window = 1 + draw(1, 25);
    std::vector<int64_t> next(rows.size(), 0);
    std::vector<int> pieces(rows.size(), 0);
    for (const Round& round : CutRounds(rows, 5, window)) {
      int64_t held = 0;
      for (const RoundSegment& s : round) {
        const auto l = static_cast<size_t>(s.expert - 5);
        REQUIRE(l < rows.size());
        CHECK(s.begin == next[l]);
        CHECK(s.end > s.begin);
        next[l] = s.end;
        held += s.end - s.begin;
        ++pieces[l];
      }
      CHECK(held > 0);
      CHECK(held <= window);
    }
    CHECK(next == rows);
    for (size_t l = 0; l < rows.size(); ++l) {
      if (rows[l] <= window) CHECK(pieces[l] == (rows[l] > 0));
    }
  }
}

TEST_CASE("offsets of a round are those of its rows in the window; none in a round that the rank has not") {
  const std::vector<Round> rounds = CutRounds({3, 0, 6, 1}, 8, 4);
  REQUIRE(rounds.size() == 3);
  CHECK(OffsetsOfRound(rounds, 0, 8, 4) == std::vector<int64_t>{0, 3, 3, 4, 4});
  CHECK(OffsetsOfRound(rounds, 1, 8, 4) == std::vector<int64_t>{0, 0, 0, 4, 4});
  CHECK(OffsetsOfRound(rounds, 2, 8, 4) == std::vector<int64_t>{0, 0, 0, 1, 2});
  CHECK(OffsetsOfRound(rounds, 3, 8, 4) == std::vector<int64_t>{0, 0, 0, 0, 0});
}

TEST_CASE("a source's rows of all rounds: each once, in order, at distinct places of the window") {
  for (uint64_t i = 0; i < 300; ++i) {
    const auto draw = [&](uint64_t j, int64_t n) {
      return static_cast<int64_t>(PhiloxUniform(2, i, j) * static_cast<double>(n));
    };
    const int64_t experts = 1 + draw(0, 6), sources = 1 + draw(1, 4), window = 1 + draw(2, 12);
    const auto count = [&](int64_t source, int64_t e) { return draw(static_cast<uint64_t>(10 + source * 16 + e), 9); };
    const auto begin = [&](int64_t source, int64_t e) {
      int64_t sum = 0;
      for (int64_t p = 0; p < source; ++p) sum += count(p, e);
      return sum;
    };
    std::vector<int64_t> rows;
    for (int64_t e = 0; e < experts; ++e) rows.push_back(begin(sources, e));
    std::vector<std::vector<int64_t>> next(static_cast<size_t>(sources), std::vector<int64_t>(rows.size(), 0));
    for (const Round& round : CutRounds(rows, 0, window)) {
      int64_t held = 0;
      for (const RoundSegment& s : round) held += s.end - s.begin;
      std::vector<int> taken(static_cast<size_t>(held), 0);
      for (int64_t p = 0; p < sources; ++p) {
        ForRowsOfRound(
            round, [&](int64_t e) { return begin(p, e); }, [&](int64_t e) { return count(p, e); },
            [&](int64_t e, int64_t first, int64_t row, int64_t n) {
              CHECK(first == next[static_cast<size_t>(p)][static_cast<size_t>(e)]);
              next[static_cast<size_t>(p)][static_cast<size_t>(e)] += n;
              REQUIRE((n > 0 && row >= 0 && row + n <= held));
              for (int64_t r = row; r < row + n; ++r) ++taken[static_cast<size_t>(r)];
            });
      }
      CHECK(taken == std::vector<int>(static_cast<size_t>(held), 1));
    }
    for (int64_t p = 0; p < sources; ++p) {
      for (int64_t e = 0; e < experts; ++e) CHECK(next[static_cast<size_t>(p)][static_cast<size_t>(e)] == count(p, e));
    }
  }
}

}  // namespace
}  // namespace yardmaster
