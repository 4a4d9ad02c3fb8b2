// File: tests/cuda/gpu.h
//
// The GPU of a test: device, stream, arenas. YM_NEEDS_GPU(gpu) leaves the test case, marked as skipped, where there is none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/device/arena.h"
#include "src/device/cuda/make_cuda_device.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {

// The cuda device, or with YM_TEST_RAW_MEMORY in the environment one whose memory is not cleared (for initcheck).
std::unique_ptr<Device> MakeTestGpu();

class Gpu {
 public:
  explicit Gpu(size_t tensor_bytes = size_t{4} << 30, size_t work_bytes = size_t{5} << 29);
  Device& device() { return *device_; }
  const Stream& stream() const { return stream_; }
  Arena& work() { return work_; }
  Tensor Make(DType type, const Shape& shape, const std::vector<double>& values = {});  // NaN bytes without values
  std::vector<double> Values(const Tensor& t);  // contiguous
  std::string Bytes(const Tensor& t);
  void Poison(const Tensor& t);

 private:
  std::unique_ptr<Device> device_;
  Stream stream_;
  Arena work_, tensors_;
};

std::unique_ptr<Device> GpuDeviceOrNull(std::string* reason);

}  // namespace yardmaster::testing

#define YM_NEEDS_GPU()                                                                              \
  do {                                                                                              \
    const ::yardmaster::CudaStatus ym_status_ = ::yardmaster::CudaAvailability();                   \
    if (ym_status_.usable == 0) YM_SKIP("needs a GPU: " + ym_status_.reason);                       \
  } while (false)
