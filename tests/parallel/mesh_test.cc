#include "src/parallel/mesh.h"

#include <algorithm>
#include <set>

#include "src/base/error.h"
#include "src/parallel/expert_placement.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

// The groups of one kind must partition the ranks, and every member must see the same group.
template <class GroupOf>
void CheckPartition(const Mesh& mesh, GroupOf&& group_of, int64_t size) {
  std::set<int64_t> seen;
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    const std::vector<int64_t> group = group_of(rank);
    REQUIRE(static_cast<int64_t>(group.size()) == size);
    REQUIRE(std::is_sorted(group.begin(), group.end()));
    REQUIRE(std::count(group.begin(), group.end(), rank) == 1);
    if (group.front() != rank) {
      REQUIRE(group_of(group.front()) == group);
    } else {
      for (const int64_t r : group) REQUIRE(seen.insert(r).second);
    }
  }
  REQUIRE(static_cast<int64_t>(seen.size()) == mesh.world());
}

TEST_CASE("groups partition the ranks, up to 4096") {
  struct Layout {
    int64_t world, pp, ep;
  };
  for (const Layout l : {Layout{1, 1, 1},
                         {2, 1, 2},
                         {4, 1, 2},
                         {4, 2, 1},
                         {6, 1, 3},
                         {8, 2, 4},
                         {12, 3, 2},
                         {64, 4, 16},
                         {2048, 16, 64},
                         {4096, 16, 64},
                         {4096, 1, 8},
                         {4096, 4096, 1}}) {
    INFO(l.world << " " << l.pp << " " << l.ep);
    const Mesh mesh(l.world, l.pp, l.ep);
    REQUIRE(mesh.dp() * mesh.pp() == l.world);
    REQUIRE(mesh.edp() * mesh.ep() == mesh.dp());
    CheckPartition(
        mesh, [&](int64_t r) { return mesh.PpGroup(r); }, mesh.pp());
    CheckPartition(
        mesh, [&](int64_t r) { return mesh.EpGroup(r); }, mesh.ep());
    CheckPartition(
        mesh, [&](int64_t r) { return mesh.EdpGroup(r); }, mesh.edp());
    if (mesh.dp() <= 256)
      CheckPartition(
          mesh, [&](int64_t r) { return mesh.DpGroup(r); }, mesh.dp());
    for (int64_t rank = 0; rank < l.world; ++rank) {
      const Coordinates c = mesh.Of(rank);
      REQUIRE(mesh.RankOf(c.pp, c.dp) == rank);
      REQUIRE(c.dp == c.edp * mesh.ep() + c.ep);
      REQUIRE(mesh.EpGroup(rank)[static_cast<size_t>(c.ep)] == rank);
      REQUIRE(mesh.EdpGroup(rank)[static_cast<size_t>(c.edp)] == rank);
      REQUIRE(mesh.PpGroup(rank)[static_cast<size_t>(c.pp)] == rank);
    }
  }
}

TEST_CASE("a layout by hand") {
  const Mesh mesh(8, 2, 2);  // dp 4, edp 2
  CHECK(mesh.Of(5) == Coordinates{.pp = 1, .dp = 1, .ep = 1, .edp = 0});
  CHECK(mesh.DpGroup(5) == std::vector<int64_t>{4, 5, 6, 7});
  CHECK(mesh.EpGroup(5) == std::vector<int64_t>{4, 5});
  CHECK(mesh.EdpGroup(5) == std::vector<int64_t>{5, 7});
  CHECK(mesh.PpGroup(5) == std::vector<int64_t>{1, 5});
}

TEST_CASE("impossible layouts are refused") {
  CHECK_THROWS_AS(Mesh(6, 4, 1), Error);
  CHECK_THROWS_AS(Mesh(6, 1, 4), Error);
  CHECK_THROWS_AS(Mesh(0, 1, 1), Error);
  CHECK_THROWS_AS(Mesh(4, 1, 0), Error);
  CHECK_THROWS_AS(ExpertPlacement(6, 4), Error);
}

TEST_CASE("experts lie in contiguous blocks") {
  const ExpertPlacement placement(256, 64);
  CHECK(placement.local_experts() == 4);
  for (int64_t e = 0; e < 256; ++e) {
    const int64_t owner = placement.OwnerOf(e);
    REQUIRE(placement.Begin(owner) + placement.LocalIndexOf(e) == e);
    REQUIRE(owner < 64);
  }
}

}  // namespace
}  // namespace yardmaster
