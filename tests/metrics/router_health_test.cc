#include "src/metrics/router_health.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/catch.h"

namespace yardmaster::testing {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

RouterHealth Layer(const std::vector<int64_t>& load, int64_t top_k = 2) {
  RouterHealth h;
  h.layer = 3;
  h.top_k = top_k;
  h.load = load;
  return h;
}

TEST_CASE("load: largest over mean, entropy over its largest, experts without a token") {
  CHECK(Layer({5, 5, 5, 5}).MaxOverMean() == 1);
  CHECK(Layer({5, 5, 5, 5}).Entropy() == Approx(1).epsilon(1e-12));
  CHECK(Layer({20, 0, 0, 0}).MaxOverMean() == 4);
  CHECK(Layer({20, 0, 0, 0}).Entropy() == 0);
  CHECK(Layer({20, 0, 0, 0}).Dead() == 3);
  // Half, a quarter, two eighths: 1.75 bits of 2.
  CHECK(Layer({4, 2, 1, 1}).Entropy() == Approx(1.75 / 2).epsilon(1e-12));
  CHECK(Layer({3, 3, 0, 0}).Entropy() == Approx(0.5).epsilon(1e-12));
  CHECK(Layer({0, 0}).Entropy() == 1);  // nothing was routed: nothing is wrong
  CHECK(Layer({0, 0}).MaxOverMean() == 0);
  CHECK(Layer({7}).Entropy() == 1);
}

TEST_CASE("metrics.jsonl gets an object for each layer, with what the layer has") {
  RouterHealth plain = Layer({4, 2, 1, 1}), full = Layer({0, 8, 0, 0});
  full.layer = 5;
  full.dropped = 6;
  full.bias = {-0.25, 0.5};
  full.sequence_balance = 1.5;
  full.router_z = NAN;
  const nlohmann::json json =
      nlohmann::json::parse("{" + RouterHealthJson({plain, full}) + "}").at("router");
  REQUIRE(json.size() == 2);
  CHECK(json[0].at("layer") == 3);
  CHECK(json[0].at("load") == nlohmann::json::array({4, 2, 1, 1}));
  CHECK(json[0].at("entropy").get<double>() == Approx(0.875));
  CHECK(json[0].at("max_over_mean") == 2);
  CHECK(json[0].at("dead") == 0);
  CHECK_FALSE(json[0].contains("bias_min"));
  CHECK_FALSE(json[0].contains("sequence_balance"));
  CHECK(json[1].at("dead") == 3);
  CHECK(json[1].at("entropy") == 0);
  CHECK(json[1].at("dropped") == 6);
  CHECK(json[1].at("bias_min") == -0.25);
  CHECK(json[1].at("bias_max") == 0.5);
  CHECK(json[1].at("sequence_balance") == 1.5);
  CHECK(json[1].at("router_z").is_null());
  CHECK_FALSE(json[1].contains("micro_batch_balance"));
}

TEST_CASE("the warning: each range, and none within it") {
  CHECK(RouterHealthWarning({}).empty());
  CHECK(RouterHealthWarning({Layer({90, 110, 100, 100})}).empty());
  CHECK(Contains(RouterHealthWarning({Layer({200, 0, 100, 100})}),
                 "router of layer 3: 1 of 4 experts get no token"));
  CHECK(RouterHealthWarning({Layer({20, 10, 10, 0})}).empty());  // too few tokens to say so
  // 16 experts, 2 for a token: 4 times the mean is the limit, 8 what one could get.
  std::vector<int64_t> load(16, 10);
  load[7] = 40;
  CHECK(RouterHealthWarning({Layer(load)}).empty());
  load[7] = 70;
  CHECK(Contains(RouterHealthWarning({Layer(load)}),
                 "the busiest expert has 5.1 times the mean load"));
  CHECK(Contains(RouterHealthWarning({Layer({50, 50, 1, 1, 1, 1, 1, 1})}), "entropy"));
  RouterHealth biased = Layer({100, 100});
  biased.bias = {-0.5, 0.5};
  CHECK(RouterHealthWarning({biased}).empty());
  biased.bias = {-0.5, 0.625};
  CHECK(Contains(RouterHealthWarning({biased}), "the router bias spans 1.1"));
  CHECK(Contains(RouterHealthWarning({Layer({100, 100}), biased, biased, biased}),
                 "and 2 more layers"));
}

TEST_CASE("out of range and back are told once each") {
  const std::vector<RouterHealth> good = {Layer({100, 100, 100, 100})},
                                  bad = {Layer({400, 0, 0, 0})};
  RouterHealthWatch watch;
  CHECK(watch.Look(good, 1).text.empty());
  const RouterHealthWatch::Message out = watch.Look(bad, 2);
  CHECK(out.warning);
  CHECK(Contains(out.text, "3 of 4 experts get no token (step 2)"));
  CHECK(watch.Look(bad, 3).text.empty());
  const RouterHealthWatch::Message back = watch.Look(good, 4);
  CHECK_FALSE(back.warning);
  CHECK(Contains(back.text, "in range again (step 4)"));
  CHECK(watch.Look(good, 5).text.empty());
  CHECK(watch.Look(bad, 6).warning);
}

}  // namespace
}  // namespace yardmaster::testing
