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
  RoutingFlips flips = FindFlips(c, choice, {0, 1, 1, 0}, {0, 1, 0, 0});
  CHECK(flips.tokens == 1);
  CHECK(flips.token == 2);
  CHECK(flips.largest_margin == Approx(0.01));
  flips = FindFlips(c, choice, {0, 1, 1, 0}, {1, 1, 0, 0});
  CHECK(flips.tokens == 2);
  CHECK(flips.token == 0);
  CHECK(flips.largest_margin == Approx(0.1));
  CHECK(FindFlips(c, choice, {0, 1, 1, 0}, {0, 1, 1, 0}).tokens == 0);
  flips = FindFlips(c, choice, {0, 2, 1, 0}, {0, 1, 1, 0});  // not what its own scores say
  CHECK(flips.token == 1);
  CHECK(flips.largest_margin == Approx(0.8));
}

}  // namespace
}  // namespace yardmaster
