// A cpu device with a second stream that does nothing until another one waits for it: as late as
// the orders between the streams allow. What such work reads must still be there then, and nobody
// may have read what it writes.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "src/device/cpu_device.h"

namespace yardmaster::testing {

class LateDevice : public CpuDevice {
 public:
  LateDevice() : CpuDevice(1) {}
  Stream AddStream() override { return Stream(this, &waiting_); }
  // Now, or on the second stream later.
  void Do(const Stream& stream, std::function<void()> op) {
    if (stream.handle() != &waiting_) return op();
    waiting_.push_back(std::move(op));
    ++deferred_;
  }
  void Order(void* earlier, void* /*later*/) override {
    if (earlier != &waiting_) return;
    for (const auto& op : std::exchange(waiting_, {})) op();
  }
  bool idle() const { return waiting_.empty(); }
  int deferred() const { return deferred_; }

 private:
  std::vector<std::function<void()>> waiting_;
  int deferred_ = 0;
};

}  // namespace yardmaster::testing
