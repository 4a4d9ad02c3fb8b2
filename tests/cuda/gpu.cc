#include "tests/cuda/gpu.h"

#include <cstdlib>
#include <cstring>

#if YM_HAVE_CUDA
#include "src/device/cuda/cuda_device.h"
#endif

namespace yardmaster::testing {

#if YM_HAVE_CUDA
namespace {

// Memory as cudaMalloc gives it: compute-sanitizer's initcheck then sees what a kernel reads and nothing wrote, in
// scratch above all. The product's device hands out zeros.
class RawCudaDevice : public CudaDevice {
 public:
  RawCudaDevice() : CudaDevice(CudaOptions{}) {}
  void* Allocate(size_t bytes) override {
    void* pointer = nullptr;
    Check(cudaMalloc(&pointer, bytes > 0 ? bytes : 1), "Allocate", "cudaMalloc");
    return pointer;
  }
};

}  // namespace
#endif

std::unique_ptr<Device> MakeTestGpu() {
#if YM_HAVE_CUDA
  if (std::getenv("YM_TEST_RAW_MEMORY") != nullptr) return std::make_unique<RawCudaDevice>();
#endif
  return MakeCudaDevice({});
}

Gpu::Gpu(size_t tensor_bytes, size_t work_bytes)
    : device_(MakeTestGpu()), stream_(device_.get()), work_("work", device_.get()), tensors_("tensors", device_.get()) {
  work_.Commit(work_bytes);
  tensors_.Commit(tensor_bytes);
}

Tensor Gpu::Make(DType type, const Shape& shape, const std::vector<double>& values) {
  const Tensor t = tensors_.Allocate("test tensor", type, shape);
  if (values.empty()) {
    Poison(t);
  } else {
    HostTensor host(type, shape);
    SetValues(host.view(), values);
    device_->CopyFromHost(t.data(), host.view().data(), static_cast<size_t>(t.bytes()));
  }
  return t;
}

void Gpu::Poison(const Tensor& t) {
  const std::vector<unsigned char> bytes(static_cast<size_t>(t.bytes()), 0xFF);
  device_->CopyFromHost(t.data(), bytes.data(), bytes.size());
}

std::vector<double> Gpu::Values(const Tensor& t) {
  YM_CHECK(t.contiguous());
  HostTensor host(t.dtype(), t.shape());
  device_->CopyToHost(host.view().data(), t.data(), static_cast<size_t>(t.bytes()));
  return ValuesOf(host.view());
}

std::string Gpu::Bytes(const Tensor& t) {
  std::string bytes(static_cast<size_t>(t.bytes()), '\0');
  device_->CopyToHost(bytes.data(), t.data(), bytes.size());
  return bytes;
}

std::unique_ptr<Device> GpuDeviceOrNull(std::string* reason) {
  const CudaStatus status = CudaAvailability();
  *reason = "needs a GPU: " + status.reason;
  return status.usable > 0 ? MakeTestGpu() : nullptr;
}

namespace {

// Every op declaration linked into this binary is checked on the GPU.
[[maybe_unused]] const bool kOpsOnGpu = (CheckOpsOn(GpuDeviceOrNull), true);

}  // namespace
}  // namespace yardmaster::testing
