// File: tests/tools/bench_grouped_gemm_test.cc
#include "tools/commands/bench_grouped_gemm.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/device/cuda/make_cuda_device.h"
#include "tests/catch.h"
#include "tools/commands/routing_counts.h"

namespace yardmaster {
namespace {

int64_t Sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int CodeOf(const BenchGroupedGemmOptions& options) {
  try {
    return RunBenchGroupedGemm(options);
  } catch (const Error& e) {
    return static_cast<int>(e.code());
  }
}

TEST_CASE("each routing gives every row to an expert") {
  for (const char* routing : {"balanced", "jitter", "skew:1", "skew:3.5", "one", "empty"}) {
    for (int experts : {4, 8, 31, 32}) {
      CAPTURE(routing, experts);
      const std::vector<int64_t> counts = RoutingCounts(routing, experts, 32749);
      REQUIRE(counts.size() == static_cast<size_t>(experts));
      REQUIRE(Sum(counts) == 32749);
      REQUIRE(*std::min_element(counts.begin(), counts.end()) >= 0);
    }
  }
}

TEST_CASE("routings are what their names say") {
  REQUIRE(RoutingCounts("balanced", 4, 4000) == std::vector<int64_t>{1000, 1000, 1000, 1000});
  REQUIRE(RoutingCounts("empty", 4, 4000) == std::vector<int64_t>{2000, 0, 2000, 0});
  REQUIRE(RoutingCounts("one", 4, 4000) == std::vector<int64_t>{0, 0, 4000, 0});
  for (int64_t c : RoutingCounts("jitter", 32, 32000)) {
    REQUIRE(c > 500);
    REQUIRE(c < 1600);
  }
  const std::vector<int64_t> skewed = RoutingCounts("skew:8", 32, 32000);
  const int64_t most = *std::max_element(skewed.begin(), skewed.end());
  REQUIRE(std::abs(most - 8000) <= 1);
  for (int64_t c : skewed) REQUIRE((c == most || (c > 600 && c < 950)));
}

TEST_CASE("a routing that does not exist, or cannot be, is an error") {
  for (const char* routing :
       {"", "skew", "skew:", "skew:x", "skew:4x", "skew:0.5", "skew:9", "even"}) {
    CAPTURE(routing);
    REQUIRE_THROWS_AS(RoutingCounts(routing, 8, 100), Error);
  }
}

TEST_CASE("options out of range are refused with exit code 2, and so is a machine without a GPU") {
  BenchGroupedGemmOptions options;
  options.pairs = 6;
  REQUIRE(CodeOf(options) == 2);
  options = {};
  options.rows = 0;
  REQUIRE(CodeOf(options) == 2);
  options = {};
  options.ops = {"backward"};
  REQUIRE(CodeOf(options) == 2);
  options = {};
  options.precision = "fp4";
  REQUIRE(CodeOf(options) == 2);
  options.precision = "fp8_block";
  options.ops = {"wgrad-bf16-beta0"};
  REQUIRE(CodeOf(options) == 2);
  options = {};
  options.precision = "fp8_block";
  options.n = 4104;
  REQUIRE(CodeOf(options) == 2);
  options = {};
  options.routing = "skew:9";
  REQUIRE(CodeOf(options) == 2);
  if (CudaAvailability().usable == 0) REQUIRE(CodeOf({}) == 2);
}

TEST_CASE("a small benchmark runs where there is a GPU") {
  const CudaStatus status = CudaAvailability();
  if (status.usable == 0) YM_SKIP("needs a GPU: " + status.reason);
  BenchGroupedGemmOptions options;
  options.rows = 256;
  options.experts = 3;
  options.n = 128;
  options.k = 192;
  options.heat_seconds = 0;
  options.loop = true;
  REQUIRE(RunBenchGroupedGemm(options) == 0);
}

TEST_CASE("the report gives rates and ratios, as a table and as JSON") {
  BenchGroupedGemmOptions options;
  options.rows = 1000;
  options.experts = 2;
  options.n = 500;
  options.k = 1000;
  options.loop = true;
  const std::vector<BenchGroupedGemmResult> results = {{"forward", 0.5, 0.55, 1.1, 2.0, 4.0}};
  const std::string table = BenchGroupedGemmText(options, "a GPU", {400, 600}, results);
  REQUIRE(table.find("a GPU") == 0);
  REQUIRE(table.find("400 to 600 rows each") != std::string::npos);
  // 2 x 1000 x 500 x 1000 operations in 0.5 ms.
  REQUIRE(
      table.find("forward                0.500        2      0.550   1.100      2.000   4.000") !=
      std::string::npos);
  options.json = true;
  const auto json =
      nlohmann::json::parse(BenchGroupedGemmText(options, "a GPU", {400, 600}, results));
  REQUIRE(json["counts"] == std::vector<int>{400, 600});
  REQUIRE(json["results"][0]["op"] == "forward");
  REQUIRE(json["results"][0]["tflops"] == Approx(2.0));
  REQUIRE(json["results"][0]["dense_ratio"] == Approx(1.1));
  REQUIRE(json["results"][0]["loop_ratio"] == Approx(4.0));
}

}  // namespace
}  // namespace yardmaster
