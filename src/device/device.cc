#include "src/device/device.h"

namespace yardmaster {

void Stream::Synchronize() const { device_->Synchronize(handle_); }

}  // namespace yardmaster
