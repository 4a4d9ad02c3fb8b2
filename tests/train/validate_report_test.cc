#include "src/train/validate_report.h"

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/config/printer.h"
#include "src/config/reader.h"
#include "src/config/supported.h"
#include "src/train/loop.h"
#include "tests/base/temp_dir.h"
#include "tests/catch.h"

namespace yardmaster::testing {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr char kReference[] = "configs/deepseek_v3_671b.yaml";

TEST_CASE("the reference configuration: valid, 671.03 B, 37.55 B, and what cannot be run") {
  const LoadedConfig loaded = LoadConfig(kReference, {});
  const std::string report = ValidateReport(kReference, loaded.config);
  INFO(report);
  CHECK(Contains(report, "is valid"));
  CHECK(Contains(report, "parameters, total      671026419200  671.03 B"));
  CHECK(Contains(report, "parameters, active      37552"));
  CHECK(Contains(report, "37.55 B"));
  const size_t refused = report.find("This version cannot run:");
  REQUIRE(refused != std::string::npos);
  CHECK(report.find("parallel.pp = 16", refused) != std::string::npos);
  CHECK(report.find("precision.compute", refused) == std::string::npos);
}

TEST_CASE("training it is refused, naming each") {
  TempDir temp;
  TrainOptions options;
  // As it is, on one rank: a layout for 2048 GPUs is no reason to hide what no layout could run.
  options.loaded = LoadConfig(kReference, {"run.dir=" + temp.path() + "/run"});
  std::string message;
  try {
    Train(options, nullptr);
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::kConfig);
    message = e.what();
  }
  INFO(message);
  CHECK(Contains(message, "this version cannot run"));
  CHECK(Contains(message, "parallel.pp = 16"));
  CHECK(!Contains(message, "precision.compute"));
}

TEST_CASE("the report is of the device that a run would take") {
  const auto report = [](std::vector<std::string> overrides) {
    return ValidateReport("tiny", LoadConfig("configs/tiny_deepseek_v3.yaml", overrides).config);
  };
  const std::string on_cpu = report({"precision.compute=fp8_block", "runtime.device=cpu"});
  CHECK(Contains(on_cpu, "device              cpu (runtime.device: cpu)"));
  CHECK(Contains(on_cpu, "weights, activations fp32"));
  // A width that only the cpu quantises: auto takes the cpu, with or without a GPU.
  const std::string odd = report({"precision.compute=fp8_block", "runtime.device=auto", "model.moe_intermediate_size=90"});
  CHECK(Contains(odd, "device              cpu"));
  CHECK(Contains(odd, "weights, activations fp32"));
  CHECK(Contains(report({"precision.compute=fp64", "runtime.device=cpu"}), "moments fp64"));
  const std::string loop = report({"precision.compute=fp8_block", "moe.gemm=loop", "runtime.cuda_graph=false", "runtime.device=cuda"});
  CHECK(Contains(loop, "dequantised to bf16"));
  CHECK(Contains(loop, "device              cuda"));
  const std::string kept = "inputs of linear layers that weight gradients alone read: their 8-bit copies";
  CHECK(Contains(report({"precision.compute=mxfp8", "runtime.saved_inputs=recipe"}), kept));
  CHECK_FALSE(Contains(report({"precision.compute=mxfp8"}), kept));
}

TEST_CASE("what has not run on a GPU is said where a config is planned for one") {
  const auto report = [](std::vector<std::string> overrides) {
    return ValidateReport("tiny", LoadConfig("configs/tiny_deepseek_v3.yaml", overrides).config);
  };
  const std::string tried = "compute capability 9.0 (H200); for 8.x and 10.x (Blackwell) compiled, not run";
  const std::string units = "as they are, where cuBLASLt of 13.3 or later takes them; not run yet", hopper = "(compute capability 9.0 alone)";
  const std::string mxfp8 = report({"precision.compute=mxfp8", "runtime.device=cuda"});
  INFO(mxfp8);
  CHECK(Contains(mxfp8, tried));
  CHECK(Contains(mxfp8, units));
  CHECK_FALSE(Contains(mxfp8, hopper));
  CHECK(Contains(report({"precision.compute=mxfp8", "runtime.device=cuda", "moe.gemm=portable"}),
                 "multiplied in bf16 on every GPU, by moe.gemm: portable"));
  CHECK(Contains(report({"precision.compute=fp8_block", "runtime.device=cuda"}), hopper));
  const std::string cpu = report({"precision.compute=mxfp8", "runtime.device=cpu"});
  for (const std::string& of_gpus : {tried, units, std::string("beside it: CUDA")}) CHECK_FALSE(Contains(cpu, of_gpus));
}

TEST_CASE("with a number of ranks the report plans one of them") {
  const auto report = [](int64_t ranks, std::vector<std::string> overrides) {
    const LoadedConfig loaded = LoadConfig("configs/tiny_deepseek_v3.yaml", overrides);
    return ValidateReport("tiny", loaded.config, ranks, loaded.places);
  };
  const std::string two = report(2, {"runtime.device=cpu"});
  INFO(two);
  CHECK(Contains(two, "Memory of rank 0 of 2 (dp 2 x pp 1, ep 2, zero 1)"));
  CHECK_FALSE(Contains(two, "holds the whole model"));
  // Every token of two ranks may choose this one's 8 experts for all of its 4: twice the balanced load.
  CHECK(Contains(two, "windows hold the worst case, 2 times the balanced load"));
  CHECK_FALSE(Contains(report(2, {"runtime.device=cpu", "ep.ragged_buffer_factor=1.25"}), "worst case"));
  CHECK_FALSE(Contains(report(2, {"runtime.device=cpu", "parallel.ep=1"}), "worst case"));
  for (const char* transport : {"auto", "peer", "ipc", "windows"})
    CHECK(Contains(report(4, {"runtime.device=cuda", "precision.compute=mxfp8", "ep.payload=recipe", "ep.mode=auto",
                              StrCat("ep.transport=", transport)}),
                   "Memory of rank 0 of 4 (dp 4 x pp 1, ep 2, zero 1)"));
  try {
    report(3, {"parallel.ep=2"});
    FAIL("a layout that cannot be");
  } catch (const Error& e) {
    CHECK(Contains(e.what(), "parallel.ep: must divide the data-parallel ranks (3 ranks"));
  }
  // What no layout can run is named first.
  CHECK(Contains(report(3, {"parallel.pp=2"}), "parallel.pp = 2: this version has no pipeline stages"));
}

TEST_CASE("windows that no step's load fits are told before a run") {
  const auto report = [](std::vector<std::string> overrides) {
    return ValidateReport("tiny", LoadConfig("configs/tiny_deepseek_v3.yaml", overrides).config);
  };
  const std::string small = report({"parallel.ep=2", "ep.ragged_buffer_factor=0.07"});
  INFO(small);
  CHECK(Contains(small,
                 "Every step will be computed twice, the second time with rows crossing in 15 "
                 "rounds or more"));
  CHECK(Contains(report({"parallel.ep=auto", "ep.ragged_buffer_factor=0.5"}), "in 2 rounds or more"));
  // What a capacity lets through may fit.
  CHECK(
      Contains(report({"parallel.ep=2", "ep.ragged_buffer_factor=0.5", "moe.capacity_factor=0.75"}),
               "alone needs 0.75. Steps with such a load will be computed twice"));
  CHECK_FALSE(
      Contains(report({"parallel.ep=2", "ep.ragged_buffer_factor=0.5", "moe.capacity_factor=0.5"}),
               "warning"));
  CHECK_FALSE(Contains(report({"parallel.ep=2", "ep.ragged_buffer_factor=1"}), "warning"));
  CHECK_FALSE(Contains(report({"parallel.ep=2"}), "warning"));
  CHECK_FALSE(Contains(report({"parallel.ep=1", "ep.ragged_buffer_factor=0.5"}),
                       "warning"));  // the window holds all
}

TEST_CASE("the tiny configuration shows its memory") {
  const LoadedConfig loaded = LoadConfig("configs/tiny_deepseek_v3.yaml", {});
  CHECK(UnsupportedFeatures(loaded.config).empty());
  const std::string report = ValidateReport("tiny", loaded.config);
  CHECK(Contains(report, "saved"));
  CHECK(Contains(report, "routed experts (forward, input and weight gradients): fp32"));
  CHECK(Contains(report, "in all"));
}

TEST_CASE("the memory of the most layers that a configuration may have is planned too") {
  const LoadedConfig loaded = LoadConfig("configs/tiny_deepseek_v3.yaml", {"model.num_hidden_layers=16384"});
  CHECK(Contains(ValidateReport("tiny", loaded.config), "in all"));
}

}  // namespace
}  // namespace yardmaster::testing
