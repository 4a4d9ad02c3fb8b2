// Whether planned memory fits is said before any of it is taken.
#include "src/train/machine_memory.h"

#include "src/base/error.h"
#include "src/base/strings.h"
#include "tests/catch.h"

namespace yardmaster::testing {
namespace {

// A GPU of which no more is asked than how much memory it has.
class Gpu : public Device {
 public:
  Gpu(size_t used, size_t total) : used_(used), total_(total) {}
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string description() const override { return "cuda 3 (a GPU)"; }
  void* Allocate(size_t) override { return nullptr; }
  void Free(void*) noexcept override {}
  void CopyToHost(void*, const void*, size_t) override {}
  void CopyFromHost(void*, const void*, size_t) override {}
  size_t used_bytes() const override { return used_; }
  size_t total_bytes() const override { return total_; }

 private:
  size_t used_, total_;
};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string Refusal(const Gpu& gpu, int ranks) {
  try {
    CheckFits({{"weights", 600}, {"saved", 400}}, gpu, ranks);
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::kConfig);
    return e.what();
  }
  return "";
}

TEST_CASE("memory: a GPU's rank needs what is free, ranks that share it what there is") {
  CHECK(Refusal(Gpu(500, 1500), 1) == "");
  const std::string alone = Refusal(Gpu(501, 1500), 1);
  INFO(alone);
  CHECK(Contains(alone, "1 rank on this GPU"));
  CHECK(Contains(alone, "cuda 3"));
  CHECK(Contains(alone, "weights"));
  // Another rank may have its part of the 1500 that are used.
  CHECK(Refusal(Gpu(1500, 2000), 2) == "");
  CHECK(Contains(Refusal(Gpu(0, 1999), 2), "2 ranks on this GPU"));
  // A device that does not say how much it has is believed.
  CHECK(Refusal(Gpu(0, 0), 2) == "");
}

TEST_CASE("memory: on cpu the machine holds all ranks' part") {
  const std::unique_ptr<Device> cpu = MakeCpuDevice({.threads = 1});
  CheckFits({{"weights", 1024}}, *cpu, 1);
  CHECK_THROWS_AS(CheckFits({{"weights", size_t{1} << 60}}, *cpu, 1), Error);
  CHECK_THROWS_AS(CheckFits({{"weights", size_t{1} << 50}}, *cpu, 1024), Error);
}

}  // namespace
}  // namespace yardmaster::testing
