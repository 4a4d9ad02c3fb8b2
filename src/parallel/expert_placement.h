// File: src/parallel/expert_placement.h
//
// Experts lie on an EP group in contiguous blocks of E / ep: the owner of an expert is a division, a rank's
// experts are one box of the global tensor, and ascending expert id is ascending rank.
#pragma once

#include <cstdint>

#include "src/base/check.h"

namespace yardmaster {

class ExpertPlacement {
 public:
  // Throws ConfigError unless ep divides the number of experts.
  ExpertPlacement(int64_t num_experts, int64_t ep) : num_experts_(num_experts), ep_(ep) {
    if (num_experts < 1 || ep < 1 || num_experts % ep != 0) {
      throw ConfigError(StrCat("parallel.ep = ", ep, " does not divide the ", num_experts, " routed experts"),
                        "", "every rank of an EP group owns the same number of experts");
    }
  }
  int64_t local_experts() const { return num_experts_ / ep_; }  // L
  int64_t Begin(int64_t ep_index) const { return ep_index * local_experts(); }
  int64_t OwnerOf(int64_t expert) const { return expert / local_experts(); }  // ep index
  int64_t LocalIndexOf(int64_t expert) const { return expert % local_experts(); }

 private:
  int64_t num_experts_, ep_;
};

}  // namespace yardmaster
