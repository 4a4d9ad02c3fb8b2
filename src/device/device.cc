#include "src/device/device.h"

#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/base/clock.h"

namespace yardmaster {
namespace {

// Of devices whose ops are done when they return.
class ClockTimeline : public Timeline {
 public:
  StepTimes Take() override {
    times_.seconds = times_.ops.empty() ? 0 : last_end_ - first_start_;
    return std::exchange(times_, {});
  }

 protected:
  void Start(void*) override {
    start_ = NowSeconds();
    if (times_.ops.empty()) first_start_ = start_;
  }
  void Stop(void*) noexcept override {
    last_end_ = NowSeconds();
    now_.seconds = last_end_ - start_;
    times_.ops.push_back(std::move(now_));
  }

 private:
  StepTimes times_;
  double start_ = 0, first_start_ = 0, last_end_ = 0;
};

// Of devices whose ops are done when they return.
class PlainHostCopy : public HostCopy {
 public:
  PlainHostCopy(Device* device, size_t bytes) : device_(device), memory_(bytes) {}
  void Enqueue(const Stream&, const void* device, size_t bytes) override {
    YM_CHECK_LE(bytes, memory_.size());
    device_->CopyToHost(memory_.data(), device, bytes);
  }
  const void* Wait() override { return memory_.data(); }

 private:
  Device* device_;
  std::vector<unsigned char> memory_;
};

}  // namespace

std::unique_ptr<HostCopy> Device::MakeHostCopy(size_t bytes) {
  return std::make_unique<PlainHostCopy>(this, bytes);
}

std::unique_ptr<Recording> Device::Record(const Stream&, const std::function<void()>&) {
  YM_CHECK(false, "the ", DeviceKindName(kind()), " device does not record");
  return nullptr;
}

std::unique_ptr<Timeline> Device::MakeTimeline() { return std::make_unique<ClockTimeline>(); }

Stream Device::AddStream() { return Stream(this); }

void Stream::Synchronize() const { device_->Synchronize(handle_); }

}  // namespace yardmaster
