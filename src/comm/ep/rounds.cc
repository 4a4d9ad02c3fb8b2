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

}  // namespace yardmaster
