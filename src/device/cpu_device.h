// File: src/device/cpu_device.h
//
// The cpu device: host memory, ops that run at once in the calling thread and its pool. By
// MakeCpuDevice (device.h) for everyone; tests derive from it, to see in which order a schedule
// lets streams run.
#pragma once

#include <string>

#include "src/device/cpu_parallel.h"
#include "src/device/device.h"

namespace yardmaster {

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int threads);
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string description() const override;
  void* Allocate(size_t bytes) override;
  void Free(void* pointer) noexcept override;
  void CopyToHost(void* host, const void* device, size_t bytes) override;
  void CopyFromHost(void* device, const void* host, size_t bytes) override;
  CpuPool& pool() { return pool_; }

 private:
  std::string blas_;
  CpuPool pool_;
};

}  // namespace yardmaster
