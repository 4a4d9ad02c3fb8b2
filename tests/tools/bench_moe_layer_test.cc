// File: tests/tools/bench_moe_layer_test.cc
#include "tools/commands/bench_moe_layer.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/error.h"
#include "src/device/cuda/make_cuda_device.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

std::string MessageOf(const std::function<void(BenchMoeLayerOptions&)>& change) {
  BenchMoeLayerOptions options;
  change(options);
  try {
    RunBenchMoeLayer(options);
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::kConfig);
    return e.what();
  }
  return "no error";
}

TEST_CASE("impossible sizes are config errors that name the option, GPU or not") {
  using O = BenchMoeLayerOptions;
  CHECK(MessageOf([](O& o) { o.tokens = 0; }).find("at least 1") != std::string::npos);
  CHECK(MessageOf([](O& o) { o.shared = -1; }).find("--shared") != std::string::npos);
  CHECK(MessageOf([](O& o) { o.groups = 5; }).find("--groups") != std::string::npos);
  CHECK(MessageOf([](O& o) { o.top_k = 17; }).find("--top-k") != std::string::npos);  // 4 groups hold 16
  CHECK(MessageOf([](O& o) { o.repeats = 2; }).find("--repeats") != std::string::npos);
  CHECK(MessageOf([](O& o) { o.weight_gradients = "fp8"; }).find("fp8") != std::string::npos);
  for (const char* routing : {"", "even", "skew:", "skew:0.5", "skew:5"}) {
    CAPTURE(routing);
    CHECK(MessageOf([&](O& o) { o.routing = routing; }).find("--routing") != std::string::npos);
  }
}

TEST_CASE("without a GPU the layer is not measured, and says why") {
  if (CudaAvailability().usable > 0) return;
  CHECK(MessageOf([](BenchMoeLayerOptions&) {}).find("needs a GPU") != std::string::npos);
}

TEST_CASE("a layer's report: medians, and FLOPs of three passes over nine experts a token") {
  BenchMoeLayerOptions options;
  CHECK(MoeLayerFlops(options) == 3.0 * 2 * 8192 * 9 * 3 * 7168 * 2048);
  options.shared = 0;
  CHECK(MoeLayerFlops(options) == 3.0 * 2 * 8192 * 8 * 3 * 7168 * 2048);
  options.shared = 1;
  const BenchMoeLayerResult result{.device = "a GPU", .forward_ms = {10, 9, 30}, .ms = {31, 30, 90}, .load = {3, 5}};
  options.json = true;
  const auto json = nlohmann::json::parse(BenchMoeLayerText(options, result));
  CHECK(json["ms"] == 31.0);
  CHECK(json["forward_ms"] == 10.0);
  CHECK(json["tflops"].get<double>() == Approx(MoeLayerFlops(options) / 31e-3 * 1e-12));
  options.json = false;
  const std::string text = BenchMoeLayerText(options, result);
  CHECK(text.find("31.000 ms (median of 3)") != std::string::npos);
  CHECK(text.find("3 to 5 pairs") != std::string::npos);
}

}  // namespace
}  // namespace yardmaster
