#include "src/train/routing_flips.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "src/base/check.h"

namespace yardmaster {
namespace {

constexpr double kNoise = 1e-6;  // of scores in F32 and their sums with the bias
constexpr double kNever = std::numeric_limits<double>::infinity();

std::vector<double> GroupScores(const ModelConfig& c, const std::vector<double>& choice) {
  const auto size = static_cast<std::ptrdiff_t>(c.n_routed_experts / c.n_group);
  std::vector<double> scores;
  for (std::ptrdiff_t g = 0; g < c.n_group; ++g) {
    std::vector<double> of_group(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(of_group.begin(), of_group.end(), std::greater<>());
    scores.push_back(c.topk_method == "noaux_tc" && size > 1 ? of_group[0] + of_group[1] : of_group[0]);
  }
  return scores;
}

}  // namespace

double ChoiceMargin(const ModelConfig& c, const std::vector<double>& choice,
                    const std::vector<int64_t>& experts) {
  for (const double x : choice) {
    if (std::isnan(x)) return kNever;
  }
  const bool relative = c.scoring_func == "softmax";
  const auto over = [relative](double larger, double smaller) {
    const double apart = std::max(0.0, larger - smaller);
    return relative && apart > 0 ? apart / larger : apart;
  };
  const int64_t groups = std::max<int64_t>(c.n_group, 1), size = c.n_routed_experts / groups;
  std::set<int64_t> wanted, open;
  for (const int64_t e : experts) wanted.insert(e / size);
  double margin = 0;
  if (groups > 1 && c.topk_group < groups) {
    const std::vector<double> scores = GroupScores(c, choice);
    const auto score = [&](int64_t g) { return scores[static_cast<size_t>(g)]; };
    std::vector<int64_t> order;
    for (int64_t g = 0; g < groups; ++g) order.push_back(g);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score(a) > score(b); });
    open.insert(order.begin(), order.begin() + c.topk_group);
    // The weakest open groups that are not wanted give way to the wanted ones that are closed.
    std::vector<int64_t> closed, weakest;
    for (const int64_t g : wanted) {
      if (open.count(g) == 0) closed.push_back(g);
    }
    for (auto g = order.rend() - c.topk_group; g != order.rend() && weakest.size() < closed.size(); ++g) {
      if (wanted.count(*g) == 0) weakest.push_back(*g);
    }
    if (weakest.size() < closed.size()) return kNever;
    for (const int64_t g : closed) margin = std::max(margin, over(score(weakest.back()), score(g)));
    for (const int64_t g : weakest) open.erase(g);
  }
  open.insert(wanted.begin(), wanted.end());
  double weakest = kNever, strongest = -kNever;  // of the experts; of the others that could be chosen
  for (int64_t e = 0; e < c.n_routed_experts; ++e) {
    const double x = choice[static_cast<size_t>(e)];
    if (std::find(experts.begin(), experts.end(), e) != experts.end()) {
      weakest = std::min(weakest, x);
    } else if (groups == 1 || c.topk_group >= groups || open.count(e / size) > 0) {
      strongest = std::max(strongest, x);
    }
  }
  return std::max(margin, over(strongest, weakest));
}

RoutingFlips FindFlips(const ModelConfig& c, const std::vector<double>& choice,
                       const std::vector<int32_t>& ours, const std::vector<int32_t>& reference,
                       int64_t sequence, bool forced, std::vector<bool>* changed) {
  const auto E = static_cast<size_t>(c.n_routed_experts), K = static_cast<size_t>(c.num_experts_per_tok);
  YM_CHECK_EQ(ours.size(), reference.size());
  YM_CHECK_EQ(choice.size() / E, ours.size() / K);
  changed->resize(ours.size() / K, false);
  const std::vector<bool> before = *changed;
  RoutingFlips flips;
  for (size_t t = 0; t < before.size(); ++t) {
    // Forced experts change no later layer's input.
    if (!forced && t % static_cast<size_t>(sequence) > 0 && (*changed)[t - 1]) (*changed)[t] = true;
    const auto row = [&](const std::vector<int32_t>& idx) {
      std::vector<int64_t> experts(idx.begin() + static_cast<std::ptrdiff_t>(t * K),
                                   idx.begin() + static_cast<std::ptrdiff_t>((t + 1) * K));
      std::sort(experts.begin(), experts.end());
      return experts;
    };
    const auto first = choice.begin() + static_cast<std::ptrdiff_t>(t * E);
    const std::vector<double> of_token(first, first + static_cast<std::ptrdiff_t>(E));
    const double of_reference = ChoiceMargin(c, of_token, row(reference));
    if (forced ? of_reference <= kNoise : row(ours) == row(reference)) continue;
    ++flips.tokens;
    if (!forced) (*changed)[t] = true;
    if (before[t]) {
      ++flips.later;
      continue;
    }
    const double margin = forced ? of_reference : std::max(of_reference, ChoiceMargin(c, of_token, row(ours)));
    if (flips.token >= 0 && margin <= flips.largest_margin) continue;
    flips.largest_margin = margin;
    flips.token = static_cast<int64_t>(t);
  }
  return flips;
}

}  // namespace yardmaster
