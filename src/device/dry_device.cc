// The dry device: nothing is stored, nothing is computed. Copies are accepted and do nothing, so
// that the code that plans a step is the code that runs it.
#include "src/base/check.h"
#include "src/device/device.h"

namespace yardmaster {
namespace {

class DryDevice : public Device {
 public:
  explicit DryDevice(DeviceKind target) : target_(target) {}
  DeviceKind target() const override { return target_; }
  DeviceKind kind() const override { return DeviceKind::kDry; }
  std::string description() const override { return "dry (plans memory, computes nothing)"; }
  void* Allocate(size_t bytes) override {
    YM_CHECK(false, "the dry device has no memory to give (", bytes,
             " bytes asked); arenas on it only measure");
    return nullptr;
  }
  void Free(void*) noexcept override {}
  void CopyToHost(void*, const void*, size_t) override {}
  void CopyFromHost(void*, const void*, size_t) override {}

 private:
  DeviceKind target_;
};

}  // namespace

std::unique_ptr<Device> MakeDryDevice(DeviceKind plans_for) {
  return std::make_unique<DryDevice>(plans_for);
}

}  // namespace yardmaster
