#include "src/checkpoint/cover.h"

#include <cstdint>

#include "tests/catch.h"
#include "tests/checkpoint/state_fixture.h"

namespace yardmaster {
namespace {

using testing::Contains;

TEST_CASE("boxes that tile are accepted in any order") {
  CHECK(CoverProblem({4, 6}, {{{{2, 0}, {2, 6}}, "b"}, {{{0, 3}, {2, 3}}, "c"}, {{{0, 0}, {2, 3}}, "a"}})
            .empty());
  CHECK(CoverProblem({4, 6}, {{Box::Whole({4, 6}), "a"}, {{{4, 0}, {0, 6}}, "empty"}}).empty());
  CHECK(CoverProblem(Shape(), {{Box::Whole(Shape()), "a"}}).empty());
  CHECK(CoverProblem({0, 3}, {}).empty());
}

TEST_CASE("overlaps, gaps and boxes outside are named") {
  CHECK(Contains(CoverProblem({4, 6}, {{{{0, 0}, {3, 6}}, "a"}, {{{2, 0}, {2, 6}}, "b"}}),
                 "a has [0:3, 0:6] and b has [2:4, 0:6], which overlap"));
  CHECK(Contains(CoverProblem({4, 6}, {{{{0, 0}, {2, 6}}, "a"}}), "hold 12 of the 24 elements"));
  CHECK(Contains(CoverProblem({4}, {}), "hold 0 of the 4"));
  CHECK(Contains(CoverProblem({4}, {{{{1}, {4}}, "a"}}), "outside of the shape [4] on axis 0"));
  CHECK(Contains(CoverProblem({4}, {{{{-1}, {2}}, "a"}}), "outside"));
  CHECK(Contains(CoverProblem({4}, {{{{2}, {INT64_MAX}}, "a"}}), "outside"));
  CHECK(Contains(CoverProblem({4}, {{{{0, 0}, {4, 1}}, "a"}}), "2 axes"));
  CHECK(Contains(CoverProblem(Shape(), {{Box::Whole(Shape()), "a"}, {Box::Whole(Shape()), "b"}}), "overlap"));
}

TEST_CASE("many boxes are checked quickly") {
  const int64_t n = 20000;
  std::vector<CoverPiece> pieces;
  for (int64_t i = 0; i < n; ++i)
    pieces.push_back({{{(i * 7919) % n, 0}, {1, 3}}, "rank"});  // 7919 is coprime to n
  CHECK(CoverProblem({n, 3}, pieces).empty());
  pieces[5].box.begin[0] = pieces[6].box.begin[0];
  CHECK(Contains(CoverProblem({n, 3}, pieces), "overlap"));
}

}  // namespace
}  // namespace yardmaster
