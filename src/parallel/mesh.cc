#include "src/parallel/mesh.h"

#include "src/base/check.h"

namespace yardmaster {

Mesh::Mesh(int64_t world, int64_t pp, int64_t ep) : world_(world), pp_(pp), ep_(ep) {
  if (world < 1 || pp < 1 || ep < 1) {
    throw ConfigError(
        StrCat("a layout needs at least one rank each way, not world ", world, ", pp ", pp, ", ep ", ep));
  }
  if (world % pp != 0) {
    throw ConfigError(StrCat("parallel.pp = ", pp, " does not divide the ", world, " ranks"), "",
                      "start a multiple of pp ranks, or change parallel.pp");
  }
  if (dp() % ep != 0) {
    throw ConfigError(
        StrCat("parallel.ep = ", ep, " does not divide dp = ", dp(), " (", world, " ranks / pp ", pp, ")"),
        "", "ep groups split the data-parallel ranks: choose a divisor of dp");
  }
}

Coordinates Mesh::Of(int64_t rank) const {
  YM_CHECK(0 <= rank && rank < world_, "rank ", rank, " of ", world_);
  const int64_t d = rank % dp();
  return {.pp = rank / dp(), .dp = d, .ep = d % ep_, .edp = d / ep_};
}

int64_t Mesh::RankOf(int64_t pp, int64_t dp_index) const {
  YM_CHECK(0 <= pp && pp < pp_ && 0 <= dp_index && dp_index < dp(), pp, ", ", dp_index);
  return pp * dp() + dp_index;
}

std::vector<int64_t> Mesh::DpGroup(int64_t rank) const {
  const Coordinates c = Of(rank);
  std::vector<int64_t> group;
  for (int64_t d = 0; d < dp(); ++d) group.push_back(RankOf(c.pp, d));
  return group;
}

std::vector<int64_t> Mesh::EpGroup(int64_t rank) const {
  const Coordinates c = Of(rank);
  std::vector<int64_t> group;
  for (int64_t e = 0; e < ep_; ++e) group.push_back(RankOf(c.pp, c.edp * ep_ + e));
  return group;
}

std::vector<int64_t> Mesh::EdpGroup(int64_t rank) const {
  const Coordinates c = Of(rank);
  std::vector<int64_t> group;
  for (int64_t r = 0; r < edp(); ++r) group.push_back(RankOf(c.pp, r * ep_ + c.ep));
  return group;
}

std::vector<int64_t> Mesh::PpGroup(int64_t rank) const {
  const Coordinates c = Of(rank);
  std::vector<int64_t> group;
  for (int64_t p = 0; p < pp_; ++p) group.push_back(RankOf(p, c.dp));
  return group;
}

}  // namespace yardmaster
