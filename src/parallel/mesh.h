// File: src/parallel/mesh.h
//
// Which rank does what: world = dp x pp, ep divides dp, edp = dp / ep. Pure integers.
//   rank = pp_index * dp + dp_index           pipeline stages are blocks of ranks: their traffic is the
//   lightest dp_index = edp_index * ep + ep_index      an expert-parallel group is `ep` consecutive ranks:
//   its traffic is the heaviest
// A group is listed in ascending rank, the same on each of its members; reductions go in that order.
#pragma once

#include <cstdint>
#include <vector>

namespace yardmaster {

struct Coordinates {
  int64_t pp = 0;   // pipeline stage
  int64_t dp = 0;   // data-parallel index
  int64_t ep = 0;   // which block of experts
  int64_t edp = 0;  // which replica of that block
  bool operator==(const Coordinates&) const = default;
};

class Mesh {
 public:
  // Throws ConfigError when world is no multiple of pp, or dp no multiple of ep.
  Mesh(int64_t world, int64_t pp, int64_t ep);

  int64_t world() const { return world_; }
  int64_t pp() const { return pp_; }
  int64_t dp() const { return world_ / pp_; }
  int64_t ep() const { return ep_; }
  int64_t edp() const { return dp() / ep_; }

  Coordinates Of(int64_t rank) const;
  int64_t RankOf(int64_t pp, int64_t dp) const;

  std::vector<int64_t> DpGroup(int64_t rank) const;   // the stage's ranks: dense gradients are reduced here
  std::vector<int64_t> EpGroup(int64_t rank) const;   // together they hold every expert of the stage
  std::vector<int64_t> EdpGroup(int64_t rank) const;  // the same experts: their gradients are reduced here
  std::vector<int64_t> PpGroup(int64_t rank) const;   // the stages that one micro-batch passes

 private:
  int64_t world_, pp_, ep_;
};

}  // namespace yardmaster
