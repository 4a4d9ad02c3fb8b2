// File: src/metrics/router_health.h
//
// How a router does, from the integer load of a step: in metrics.jsonl at every console line, and as a
// warning when something is out of range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace yardmaster {

struct RouterHealth {
  int64_t layer = 0;
  int64_t top_k = 1;                              // K
  std::vector<int64_t> load;                      // [E]: pairs of each expert, before any is dropped
  int64_t dropped = 0;                            // pairs over capacity
  std::optional<std::pair<double, double>> bias;  // least and largest router bias; absent: no bias
  // Balance losses of the layer, 1 at balance, and the z-loss; absent where none is trained on.
  std::optional<double> sequence_balance, micro_batch_balance, global_batch_balance, router_z;

  double MaxOverMean() const;
  double Entropy() const;  // of the load, over ln E: 1 is balanced, 0 is one expert for all
  int64_t Dead() const;    // experts without a token
};

// `"router":[{...},...]`, an object per MoE layer.
std::string RouterHealthJson(const std::vector<RouterHealth>& layers);

// One line that names what is out of range and where first; "" when nothing is:
//   dead       an expert without a token, though 64 would be its part
//   max/mean   above 4 and above half of what one expert can get (E / K)
//   entropy    below 0.7
//   bias       a span above 1, the whole range of sigmoid scores
std::string RouterHealthWarning(const std::vector<RouterHealth>& layers);

// Says once when a router leaves its range, and once when all are back in it. State: whether one was out.
class RouterHealthWatch {
 public:
  struct Message {
    bool warning = false;
    std::string text;  // "": nothing has changed
  };
  Message Look(const std::vector<RouterHealth>& layers, int64_t step);

 private:
  bool out_of_range_ = false;
};

}  // namespace yardmaster
