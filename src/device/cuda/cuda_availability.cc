#include "src/device/cuda/make_cuda_device.h"

#if YM_HAVE_CUDA

#include <cuda_runtime.h>

#include <cstdlib>

#include "src/base/strings.h"

namespace yardmaster {
namespace {

constexpr int kOldestCapability = 80;  // the kernels use mma.sync on BF16 and cp.async

std::string VersionText(int version) { return StrCat(version / 1000, ".", version % 1000 / 10); }

}  // namespace

void UseManyQueues() { static_cast<void>(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0)); }

CudaStatus CudaAvailability() {
  int runtime = 0, driver = 0, count = 0;
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    static_cast<void>(cudaGetLastError());
    return {0, "no NVIDIA driver on this machine"};
  }
  const cudaError_t counted = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  if (counted == cudaErrorInsufficientDriver) {
    return {0, StrCat("the NVIDIA driver is for CUDA ", VersionText(driver), ", this build needs CUDA ", VersionText(runtime))};
  }
  if (counted != cudaSuccess) return {0, StrCat("no GPU: ", cudaGetErrorString(counted))};
  if (count == 0) return {0, "no GPU on this machine"};
  std::vector<int> capabilities;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return {0, StrCat("GPU ", i, " does not answer")};
    }
    const int capability = properties.major * 10 + properties.minor;
    if (capability < kOldestCapability) {
      return {0, StrCat("GPU ", i, " (", properties.name, ") has compute capability ", properties.major, ".",
                        properties.minor, ", the oldest that works is 8.0 (hide it with CUDA_VISIBLE_DEVICES)")};
    }
    capabilities.push_back(capability);
    if (i + 1 == count)
      return {count, StrCat(count, count == 1 ? " GPU: " : " GPUs, the last one: ", properties.name), capabilities};
  }
  return {0, "no GPU on this machine"};
}

}  // namespace yardmaster

#else

#include "src/base/error.h"

namespace yardmaster {

void UseManyQueues() {}

CudaStatus CudaAvailability() { return {0, "built without CUDA"}; }

std::unique_ptr<Device> MakeCudaDevice(const CudaOptions& /*options*/) {
  throw ConfigError("there is no cuda device: this program was built without CUDA", "runtime.device",
                    "build on a machine with the CUDA toolkit, cuDNN and NCCL, or choose the cpu device (runtime.device, or --device)");
}

}  // namespace yardmaster

#endif
