#include "src/train/runtime.h"

#include "src/config/supported.h"
#include "tests/catch.h"
#include "tests/train/small_run.h"

namespace yardmaster::testing {
namespace {

Config With(const std::vector<std::string>& overrides) {
  return SmallRun("/nowhere", "run", overrides).loaded.config;
}

TEST_CASE("auto takes the cuda device where it is and suffices, whatever the router is asked for") {
  const CudaStatus gpu{.usable = 1, .reason = "a GPU"}, none{.usable = 0, .reason = "no GPU"};
  CHECK(WhyNotCuda(With({}), 1, gpu) == "");
  CHECK(WhyNotCuda(With({}), 1, none) == "no GPU");
  CHECK(WhyNotCuda(With({}), 2, gpu) ==
        "2 ranks on this machine, which has 1 GPU (runtime.share_device lets ranks share one)");
  CHECK(WhyNotCuda(With({"runtime.share_device=true"}), 2, gpu) == "");
  CHECK(WhyNotCuda(With({}), 2, {.usable = 2, .reason = "two"}) == "");
  for (const char* setting :
       {"moe.sequence_balance_weight=0.1", "moe.micro_batch_balance_weight=0.1",
        "moe.global_batch_balance_weight=0.1", "moe.router_z_weight=0.1", "moe.capacity_factor=1.5"}) {
    INFO(setting);
    CHECK(WhyNotCuda(With({setting}), 1, gpu) == "");
    CHECK(UnsupportedFeatures(With({setting, "runtime.device=cuda"})).empty());
  }
}

TEST_CASE("the device that was asked for, or why not") {
  std::string reason;
  CHECK(ChooseDevice(With({"runtime.device=cpu"}), 1, &reason) == DeviceKind::kCpu);
  CHECK(reason == "runtime.device: cpu");
  CHECK(ChooseDevice(With({}), 2, &reason) == DeviceKind::kCpu);
  if (CudaAvailability().usable == 0) {
    CHECK_THROWS_AS(ChooseDevice(With({"runtime.device=cuda"}), 1, &reason), Error);
    CHECK_THROWS_AS(ChooseDevice(With({"precision.compute=bf16"}), 1, &reason), Error);
  } else {
    CHECK(ChooseDevice(With({}), 1, &reason) == DeviceKind::kCuda);
  }
}

TEST_CASE("a recipe that the GPUs of a machine cannot multiply is refused before anything is run") {
  const auto config = [](const std::string& compute, const char* device) {  // of widths that the cuda device quantises
    return With({"precision.compute=" + compute, "model.qk_rope_head_dim=16", device});
  };
  const auto machine = [](std::vector<int> capabilities) {
    return CudaStatus{.usable = static_cast<int>(capabilities.size()), .reason = "GPUs", .capabilities = capabilities};
  };
  std::string reason;
  for (const char* device : {"runtime.device=auto", "runtime.device=cuda"}) {
    INFO(device);
    const Config fp8 = config("fp8_block", device);
    CHECK(ChooseDevice(fp8, 1, machine({90}), &reason) == DeviceKind::kCuda);
    for (const auto& [gpus, named] : {std::pair<std::vector<int>, const char*>{{80}, "8.0"}, {{90, 100}, "10.0"}, {{103}, "10.3"}}) {
      std::string message;
      try {
        ChooseDevice(fp8, 1, machine(gpus), &reason);
      } catch (const Error& e) {
        CHECK(e.code() == ExitCode::kConfig);
        message = e.what();
      }
      INFO(message);
      CHECK(message.find(std::string("a GPU here has ") + named) != std::string::npos);
    }
    for (const char* compute : {"mxfp8", "bf16", "fp32"})
      CHECK(ChooseDevice(config(compute, device), 1, machine({100}), &reason) ==
            DeviceKind::kCuda);
  }
  CHECK(ChooseDevice(config("fp8_block", "runtime.device=cpu"), 1, machine({100}), &reason) ==
        DeviceKind::kCpu);
}

}  // namespace
}  // namespace yardmaster::testing
