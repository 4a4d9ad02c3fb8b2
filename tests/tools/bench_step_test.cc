#include "tools/commands/bench_step.h"

#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "tests/catch.h"
#include "tests/train/small_run.h"

namespace yardmaster::testing {
namespace {

BenchStepResult Result() {
  BenchStepResult r;
  r.device = "a device";
  r.milliseconds = {12, 10, 30};
  r.tokens = 6000;
  r.flops_per_token = 2e9;
  r.flops_formula = "a formula";
  r.planned_bytes = size_t{3} << 30;
  r.used_bytes = size_t{4} << 30;
  r.graph = true;
  r.timed_steps = 2;
  r.times.seconds = 0.020;
  for (int step = 0; step < 2; ++step) {
    r.times.ops.push_back({"Gemm", "1 x 2 x 3", 0.003, 6e9, 1e9});
    r.times.ops.push_back({"Gemm", "1 x 2 x 3", 0.003, 6e9, 1e9});
    r.times.ops.push_back({"AdamWMulti", "", 0.002, 0, 2e9});
  }
  return r;
}

TEST_CASE("bench step: routing and implementation become settings") {
  CHECK(BenchStepOverrides({}).empty());
  CHECK(BenchStepOverrides({.routing = "skew:4"}) ==
        std::vector<std::string>{"moe.force_routing=skewed", "moe.force_skew=4"});
  CHECK(BenchStepOverrides({.routing = "balanced", .impl = "naive"}) ==
        std::vector<std::string>{"moe.force_routing=balanced", "moe.gemm=loop", "runtime.attention=unfused",
                                 "runtime.cuda_graph=false"});
  CHECK_THROWS_AS(BenchStepOverrides({.routing = "skewed"}), Error);
  CHECK_THROWS_AS(BenchStepOverrides({.impl = "fast"}), Error);
}

TEST_CASE("bench step: median, rates and the parts of one step") {
  const auto json = nlohmann::json::parse(BenchStepText({.json = true}, Result()));
  CHECK(json["ms"] == 12);
  CHECK(json["ms_min"] == 10);
  CHECK(json["tokens_per_second"] == Approx(500000));
  CHECK(json["tflops"] == Approx(1000));
  CHECK(json["used_gib"] == 4);
  CHECK(json["parts_ms"]["dense_gemm"] == Approx(6));
  CHECK(json["parts_ms"]["between"] == Approx(2));
  REQUIRE(json["ops"].size() == 2);
  CHECK(json["ops"][0]["op"] == "Gemm");
  CHECK(json["ops"][0]["calls"] == Approx(2));
  CHECK(json["ops"][0]["tflops"] == Approx(2));
  CHECK(json["ops"][1]["tb_per_second"] == Approx(1));
  const std::string text = BenchStepText({.ops = true}, Result());
  for (const char* part :
       {"12.00 ms (median of 3, 10.00 to 30.00)", "a formula", "CUDA graph", "1 x 2 x 3"}) {
    INFO(part);
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("bench step: runs a small configuration on the cpu device, at real and at forced routing") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  BenchStepOptions options;
  options.config_path = temp.path() + "/small.yaml";
  FileWriter file(options.config_path);
  file.Write(kSmallConfig);
  file.Close(false);
  options.set = {"run.dir=unused", "runtime.device=cpu", "data.train=" + temp.path() + "/text.train",
                 "data.validation=''"};
  options.steps = 2, options.warmup = 2, options.timed = 1, options.ops = true;
  for (const char* routing : {"real", "balanced", "skew:2"}) {
    options.routing = routing;
    CHECK(RunBenchStep(options) == 0);
  }
  CHECK_FALSE(PathExists("unused"));
  options.warmup = 1;
  CHECK_THROWS_AS(RunBenchStep(options), Error);
}

}  // namespace
}  // namespace yardmaster::testing
