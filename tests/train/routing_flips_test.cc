#include "src/train/routing_flips.h"

#include <cmath>

#include "tests/catch.h"

namespace yardmaster {
namespace {

ModelConfig Config(int64_t E, int64_t K, int64_t groups, int64_t topk_groups) {
  ModelConfig c;
  c.n_routed_experts = E;
  c.num_experts_per_tok = K;
  c.n_group = groups;
  c.topk_group = topk_groups;
  c.topk_method = "noaux_tc";
  c.scoring_func = "sigmoid";
  return c;
}

TEST_CASE("routing flips: how far the scores are from a choice of experts") {
  ModelConfig c = Config(4, 2, 1, 1);
  const std::vector<double> choice = {0.9, 0.5, 0.48, 0.1};
  CHECK(ChoiceMargin(c, choice, {0, 1}) == 0);
  CHECK(ChoiceMargin(c, choice, {0, 2}) == Approx(0.02));
  CHECK(ChoiceMargin(c, choice, {0, 3}) == Approx(0.4));
  CHECK(ChoiceMargin(c, choice, {2, 3}) == Approx(0.8));
  CHECK(std::isinf(ChoiceMargin(c, {0.9, std::nan(""), 0.48, 0.1}, {0, 2})));
  c.scoring_func = "softmax";  // as a part of the larger score
  CHECK(ChoiceMargin(c, choice, {0, 2}) == Approx(0.04));
}

TEST_CASE("routing flips: a group that had to give way counts by the groups' scores") {
  ModelConfig c = Config(8, 3, 4, 2);
  const std::vector<double> choice = {0.9, 0.8, 0.5, 0.4, 0.5, 0.39, 0.1, 0.1};
  CHECK(ChoiceMargin(c, choice, {0, 1, 2}) == 0);
  CHECK(ChoiceMargin(c, choice, {0, 1, 4}) == Approx(0.01));        // groups of 0.9 and 0.89
  CHECK(ChoiceMargin(c, choice, {0, 4, 5}) == Approx(0.8 - 0.39));  // its group alone is not enough
  CHECK(ChoiceMargin(c, choice, {2, 3, 4}) == Approx(1.7 - 0.89));  // the best group would have to go
  CHECK(std::isinf(ChoiceMargin(c, choice, {0, 2, 4})));            // three groups, of which two are open
  c.topk_method = "group_limited_greedy";                           // the largest of a group
  CHECK(ChoiceMargin(c, choice, {0, 1, 4}) == 0);
  CHECK(ChoiceMargin(c, choice, {0, 1, 6}) == Approx(0.4));
}

TEST_CASE("routing flips: tokens with other experts, and the largest margin among them") {
  const ModelConfig c = Config(3, 1, 1, 1);
  const std::vector<double> choice = {0.5, 0.4, 0.1, 0.2, 0.9, 0.1, 0.3, 0.31, 0.0, 0.7, 0.1, 0.2};
  const std::vector<int32_t> chosen = {0, 1, 1, 0};  // what these scores say
  const auto find = [&](const std::vector<int32_t>& ours, const std::vector<int32_t>& reference) {
    std::vector<bool> changed;
    return FindFlips(c, choice, ours, reference, /*sequence=*/4, /*forced=*/false, &changed);
  };
  CHECK(find(chosen, chosen).tokens == 0);
  RoutingFlips flips = find(chosen, {0, 1, 0, 0});
  CHECK(flips.tokens == 1);
  CHECK(flips.token == 2);
  CHECK(flips.largest_margin == Approx(0.01));
  flips = find(chosen, {1, 1, 0, 0});
  CHECK(flips.tokens == 2);
  CHECK(flips.token == 0);
  CHECK(flips.largest_margin == Approx(0.1));
  flips = find({0, 2, 1, 0}, chosen);  // not what its own scores say
  CHECK(flips.token == 1);
  CHECK(flips.largest_margin == Approx(0.8));
}

TEST_CASE("routing flips: behind another flip of its token or sample one counts, but is not judged") {
  const ModelConfig c = Config(3, 1, 1, 1);
  const std::vector<int32_t> chosen = {0, 0, 0, 0};  // two samples of two
  std::vector<bool> changed;
  const std::vector<double> choice = {0.5, 0.49, 0.1, 0.9, 0.4, 0.1, 0.5, 0.4, 0.1, 0.5, 0.3, 0.1};
  RoutingFlips flips = FindFlips(c, choice, chosen, {1, 0, 0, 1}, 2, false, &changed);
  CHECK(flips.tokens == 2);
  CHECK(flips.later == 0);
  CHECK(flips.token == 3);
  CHECK(flips.largest_margin == Approx(0.2));
  flips = FindFlips(c, choice, chosen, {1, 1, 1, 1}, 2, false, &changed);
  CHECK(flips.tokens == 4);
  CHECK(flips.later == 3);  // the token itself, the one behind it, the other sample's second
  CHECK(flips.token == 2);
  CHECK(flips.largest_margin == Approx(0.1));
}

TEST_CASE("routing flips: with forced experts, what the scores would have chosen, in every layer") {
  const ModelConfig c = Config(3, 1, 1, 1);
  const std::vector<int32_t> forced = {1, 0};
  std::vector<bool> changed;
  for (int layer = 0; layer < 2; ++layer) {
    const RoutingFlips flips = FindFlips(c, {0.5, 0.49, 0.1, 0.5, 0.4, 0.1}, forced, forced, 2, true, &changed);
    CHECK(flips.tokens == 1);
    CHECK(flips.later == 0);
    CHECK(flips.token == 0);
    CHECK(flips.largest_margin == Approx(0.01));
  }
}

}  // namespace
}  // namespace yardmaster
