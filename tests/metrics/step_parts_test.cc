#include "src/metrics/step_parts.h"

#include <nlohmann/json.hpp>

#include "tests/catch.h"

namespace yardmaster {
namespace {

StepTimes Times() {
  StepTimes times;
  times.ops = {{.op = "Gemm", .seconds = 0.003},        {.op = "Permute", .seconds = 0.001},
               {.op = "PermutePlan", .seconds = 0.001}, {.op = "Unpermute", .seconds = 0.004},
               {.op = "Gemm", .seconds = 0.002},        {.op = "SomethingNew", .seconds = 0.0005},
               {.op = "AdamWMulti", .seconds = 0.010}};
  times.seconds = 0.025;
  return times;
}

TEST_CASE("ops add up to parts, and what lies between them is told") {
  double sum = 0;
  std::vector<std::string> names;
  for (const PartTime& p : PartTimes(Times())) {
    names.push_back(p.part);
    sum += p.milliseconds;
    if (p.part == "dense_gemm") CHECK(p.milliseconds == Approx(5));
    if (p.part == "dispatch") CHECK(p.milliseconds == Approx(2));
    if (p.part == "between") CHECK(p.milliseconds == Approx(3.5));
  }
  CHECK(names ==
        std::vector<std::string>{"dispatch", "combine", "dense_gemm", "optimizer", "other", "between"});
  CHECK(sum == Approx(25));
}

TEST_CASE("ops side by side: nothing lies between, and nothing is negative") {
  StepTimes times = Times();
  times.seconds = 0.012;
  CHECK(PartTimes(times).back().part == "between");
  CHECK(PartTimes(times).back().milliseconds == 0);
  CHECK(PartTimes({}).empty());
}

TEST_CASE("every op of a step has a part of its own kind") {
  CHECK(std::string(PartOf("GroupedGemmBackwardWeight")) == "grouped_gemm");
  CHECK(std::string(PartOf("AttentionBackward")) == "attention");
  CHECK(std::string(PartOf("RouterForward")) == "router");
  CHECK(std::string(PartOf("RmsNormBackward")) == "norm");
  CHECK(std::string(PartOf("SwigluForward")) == "activation");
  CHECK(std::string(PartOf("LinearCrossEntropy")) == "loss");
  CHECK(std::string(PartOf("GroupedGemmScaledWeight")) == "grouped_gemm");
  CHECK(std::string(PartOf("ScaledGemm")) == "dense_gemm");
  CHECK(std::string(PartOf("QuantizeRows")) == "quantise");
  CHECK(std::string(PartOf("SumSquares")) == "optimizer");
  CHECK(std::string(PartOf("SumNormAddends")) == "optimizer");
  CHECK(std::string(PartOf("Copy")) == "other");
}

TEST_CASE("the two forms: a member of a JSON object, and a line with the largest first") {
  const auto json = nlohmann::json::parse("{" + PartTimesJson(PartTimes(Times())) + "}");
  CHECK(json["parts_ms"]["optimizer"] == Approx(10));
  CHECK(json["parts_ms"].size() == 6);
  const std::string line = PartTimesLine(PartTimes(Times()));
  CHECK(line.starts_with("by part, ms: optimizer 10.00 (40 %), dense_gemm 5.00 (20 %), combine 4.00 (16 %)"));
}

}  // namespace
}  // namespace yardmaster
