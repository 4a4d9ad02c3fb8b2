#include "src/comm/ep/rounds.h"

#include <algorithm>

#include "src/base/check.h"

namespace yardmaster {

std::vector<Round> CutRounds(const std::vector<int64_t>& rows, int64_t first_expert, int64_t window) {
  std::vector<Round> rounds;
  int64_t room = 0;  // rows left in the last round
  for (size_t l = 0; l < rows.size(); ++l) {
    YM_CHECK(rows[l] >= 0, rows[l], " rows");
    YM_CHECK(rows[l] == 0 || window > 0, rows[l], " rows for a window of ", window);
    // A whole expert stays in one piece, so that its sums are those of an ample window.
    if (rows[l] <= window && rows[l] > room) room = 0;
    for (int64_t begin = 0; begin < rows[l];) {
      if (room == 0) {
        rounds.emplace_back();
        room = window;
      }
      const int64_t end = begin + std::min(room, rows[l] - begin);
      rounds.back().push_back({first_expert + static_cast<int64_t>(l), begin, end});
      room -= end - begin;
      begin = end;
    }
  }
  return rounds;
}

std::vector<std::vector<Round>> RoundsOfGroup(const int64_t* counts, int64_t n, int64_t E, int64_t L) {
  std::vector<std::vector<Round>> rounds;
  for (int64_t q = 0; q < n; ++q) {
    std::vector<int64_t> rows(static_cast<size_t>(L), 0);
    for (int64_t l = 0; l < L; ++l) {
      for (int64_t p = 0; p < n; ++p) rows[static_cast<size_t>(l)] += counts[p * (E + 2) + q * L + l];
    }
    rounds.push_back(CutRounds(rows, q * L, counts[q * (E + 2) + E + 1]));
  }
  return rounds;
}

std::vector<int64_t> OffsetsOfRound(const std::vector<Round>& rounds, int64_t round,
                                    int64_t first_expert, int64_t L) {
  std::vector<int64_t> offsets(static_cast<size_t>(L + 1), 0);
  if (round < static_cast<int64_t>(rounds.size())) {
    for (const RoundSegment& s : rounds[static_cast<size_t>(round)])
      offsets[static_cast<size_t>(s.expert - first_expert + 1)] = s.end - s.begin;
  }
  for (size_t l = 0; l < static_cast<size_t>(L); ++l) offsets[l + 1] += offsets[l];
  return offsets;
}

}  // namespace yardmaster
