// File: tests/tools/bench_dispatch_test.cc
#include "tools/commands/bench_dispatch.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/device/cuda/make_cuda_device.h"
#include "tests/catch.h"
#include "tools/commands/routing_choices.h"

namespace yardmaster {
namespace {

std::vector<int64_t> CountsOf(const std::vector<int32_t>& choices, int64_t experts) {
  std::vector<int64_t> counts(static_cast<size_t>(experts), 0);
  for (const int32_t e : choices) ++counts.at(static_cast<size_t>(e));
  return counts;
}

TEST_CASE("each token chooses different experts, in ascending order, and ranks choose differently") {
  for (const char* routing : {"balanced", "random", "real", "skew:1", "skew:3.5", "one"}) {
    CAPTURE(routing);
    const std::vector<int32_t> choices = RoutingChoices(routing, 301, 32, 5, 1);
    REQUIRE(choices.size() == 301 * 5);
    for (size_t i = 0; i < choices.size(); ++i) {
      REQUIRE((choices[i] >= 0 && choices[i] < 32));
      if (i % 5 != 0) REQUIRE(choices[i - 1] < choices[i]);
    }
    CHECK(RoutingChoices(routing, 301, 32, 5, 1) == choices);
    if (std::string(routing) != "one") CHECK(RoutingChoices(routing, 301, 32, 5, 2) != choices);
  }
  CHECK(RoutingChoices("balanced", 3, 4, 4, 1) == std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3});
}

TEST_CASE("choices are what their names say") {
  for (int64_t c : CountsOf(RoutingChoices("balanced", 320, 32, 5, 1), 32)) CHECK(c == 50);
  for (int64_t c : CountsOf(RoutingChoices("random", 3200, 32, 5, 1), 32)) CHECK((c > 400 && c < 600));
  const std::vector<int64_t> skewed = CountsOf(RoutingChoices("skew:4", 3200, 32, 5, 1), 32);
  CHECK((skewed[10] > 1900 && skewed[10] < 2100));  // 4 * 3200 * 5 / 32
  std::vector<int64_t> real = CountsOf(RoutingChoices("real", 3200, 32, 5, 1), 32);
  std::sort(real.begin(), real.end());
  CHECK(real.back() > 900);
  CHECK(real.front() < 250);
  CHECK(CountsOf(RoutingChoices("one", 7, 32, 3, 1), 32)[2] == 7);
}

TEST_CASE("a routing that does not exist, or cannot be, is an error") {
  for (const char* routing : {"", "skew", "skew:", "skew:x", "skew:4x", "skew:0.5", "skew:9", "even"}) {
    CAPTURE(routing);
    CHECK_THROWS_AS(RoutingChoices(routing, 8, 32, 4, 1), Error);
  }
  CHECK_THROWS_AS(RoutingChoices("random", 8, 4, 5, 1), Error);
}

TEST_CASE("traffic is counted by pair and by rank") {
  // Two ranks, experts 0-3 and 4-7; top-3.
  const DispatchTraffic t = CountTraffic({{0, 1, 4, 5, 6, 7}, {0, 3, 7}}, 8, 3);
  CHECK(t.tokens == 3);
  CHECK(t.rows == 9);
  CHECK(t.copies == 5);         // 2 + 1 of rank 0, 2 of rank 1
  CHECK(t.remote_rows == 6);    // 1 + 3, and 2
  CHECK(t.remote_copies == 3);  // 1 + 1, and 1
  CHECK(t.most_rows == 5);
}

TEST_CASE("the table and the JSON say the same, with the formulas of the header") {
  BenchDispatchOptions o;
  o.ranks = 2;
  o.hidden = 1000;
  const DispatchTraffic t{.tokens = 100, .rows = 800, .copies = 300, .remote_rows = 400, .remote_copies = 100, .most_rows = 440};
  const std::vector<BenchDispatchResult> results = {
      {"expanded", "plan", 8, 0.5}, {"expanded", "dispatch", 8, 1}, {"deduplicated", "combine", 16, 2}};
  o.json = true;
  const auto json = nlohmann::json::parse(BenchDispatchText(o, "a GPU", 2, t, results));
  CHECK(json["dedup_savings"] == 0.75);
  CHECK(json["results"][0]["moved_gbs"] == 0.0);
  CHECK(json["results"][1]["moved_gbs"].get<double>() == Approx(900 * 2000 / 1e6));
  CHECK(json["results"][1]["of_copy"].get<double>() == Approx(0.9));
  CHECK(json["results"][1]["logical_gbs"].get<double>() == Approx(400 * 2000 / 1e6));
  CHECK(json["results"][1]["wire_gbs"].get<double>() == Approx(200 * 2000 / 1e6));
  CHECK(json["results"][2]["moved_gbs"].get<double>() == Approx(1500 * 2000 / 2e6));
  CHECK(json["results"][2]["wire_gbs"].get<double>() == Approx(50 * 2000 / 2e6));
  o.json = false;
  const std::string text = BenchDispatchText(o, "a GPU", 2, t, results);
  CHECK(text.find("1.10 x the mean") != std::string::npos);
  CHECK(text.find("75 % saved") != std::string::npos);
  CHECK(text.find("90.0 %") != std::string::npos);
}

TEST_CASE("options out of range are errors that name the option") {
  const auto message = [](const BenchDispatchOptions& o) -> std::string {
    try {
      RunBenchDispatch(o);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  CHECK(message({.ranks = 0}).find("--ranks") != std::string::npos);
  CHECK(message({.ranks = 33}).find("--ranks") != std::string::npos);
  CHECK(message({.ranks = 3}).find("--experts") != std::string::npos);
  CHECK(message({.tokens = 0}).find("--tokens") != std::string::npos);
  CHECK(message({.top_k = 0}).find("--top-k") != std::string::npos);
  CHECK(message({.routing = "no"}).find("routing") != std::string::npos);
  CHECK(message({.modes = {"both"}}).find("both") != std::string::npos);
  CHECK(message({.sms = {12}}).find("--sms 12") != std::string::npos);
  CHECK(message({.repeats = 2}).find("--repeats") != std::string::npos);
}

TEST_CASE("without a GPU the command says so") {
  if (CudaAvailability().usable > 0) YM_SKIP("there is a GPU");
  try {
    RunBenchDispatch({});
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(std::string(e.what()).find("needs a GPU") != std::string::npos);
  }
}

}  // namespace
}  // namespace yardmaster
