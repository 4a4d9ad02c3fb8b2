// File: src/comm/ep/rounds.h
//
// How an exact replay cuts the rows of one rank's experts into rounds that its window holds. Pure integers:
// every rank of a group computes the rounds of all of them from the same counts.
#pragma once

#include <cstdint>
#include <vector>

namespace yardmaster {

// Rows [begin, end) of the rows that all ranks send to one expert, in the order of the window: by source
// rank, then by token.
struct RoundSegment {
  int64_t expert = 0;
  int64_t begin = 0, end = 0;
  bool operator==(const RoundSegment&) const = default;
};
// What a window holds in one round, in this order.
using Round = std::vector<RoundSegment>;

// rows[l] are the rows of expert first_expert + l. A round takes as many whole experts, in ascending order,
// as fit into `window` rows. An expert with more rows than that is cut: it fills up the round before it and
// goes on in chunks of `window` rows, the last of which shares its round. Experts without rows are left out;
// no rows at all: no rounds.
std::vector<Round> CutRounds(const std::vector<int64_t>& rows, int64_t first_expert, int64_t window);

// The rounds of each of the n ranks of a group, which own L experts each. counts: [n, E + 2] in host memory, as
// RoutingHandle::counts.
std::vector<std::vector<Round>> RoundsOfGroup(const int64_t* counts, int64_t n, int64_t E, int64_t L);

// RoutingHandle::offsets in a round of a rank that owns the L experts from first_expert on: where
// the rows of each begin in the window, and the end. Zeros where the rank has no such round.
std::vector<int64_t> OffsetsOfRound(const std::vector<Round>& rounds, int64_t round, int64_t first_expert,
                                    int64_t L);

// What one source sends in a round: f(expert, first, row, rows) for rows [first, first + rows) of those it has for the
// expert, at [row, row + rows) of the window. Its rows for expert e are [begin_of(e), begin_of(e) + count_of(e)) of all.
template <class Begin, class Count, class F>
void ForRowsOfRound(const Round& round, Begin&& begin_of, Count&& count_of, F&& f) {
  int64_t row = 0;
  for (const RoundSegment& s : round) {
    const int64_t first = begin_of(s.expert), begin = first > s.begin ? first : s.begin,
                  last = first + count_of(s.expert), end = last < s.end ? last : s.end;
    if (begin < end) f(s.expert, begin - first, row + begin - s.begin, end - begin);
    row += s.end - s.begin;
  }
}

}  // namespace yardmaster
