#include "src/device/cpu_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "src/base/check.h"
#include "src/base/strings.h"
#include "src/device/openblas_setup.h"

namespace yardmaster {
namespace {

constexpr size_t kAlignment = 256;
constexpr int kMaxThreads = 64;  // OpenBLAS of the distributions has work buffers for 64 callers

// Linux hands out more memory than there is and kills the process when it is touched: ask first. 0:
// unknown.
size_t AvailableBytes() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key, rest; meminfo >> key && std::getline(meminfo, rest);) {
    if (key == "MemAvailable:")
      return static_cast<size_t>(std::strtoull(rest.c_str(), nullptr, 10)) * 1024;
  }
  return 0;
}

}  // namespace

CpuDevice::CpuDevice(int threads) : blas_(PrepareOpenBlas()), pool_(threads) {}

std::string CpuDevice::description() const {
  return StrCat("cpu (", pool_.threads(), pool_.threads() == 1 ? " thread, " : " threads, ", blas_,
                ")");
}

void* CpuDevice::Allocate(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  const size_t available = AvailableBytes();
  void* pointer = nullptr;
  if (rounded >= bytes && (available == 0 || rounded <= available))
    pointer = std::aligned_alloc(kAlignment, rounded);
  if (pointer == nullptr) {
    throw Error(
        ExitCode::kConfig,
        StrCat("no memory for ", HumanBytes(static_cast<double>(bytes)), " (", bytes,
               " bytes); available: ",
               available ? HumanBytes(static_cast<double>(available)) : "unknown"),
        "cpu device",
        "use a smaller micro-batch, sequence length or model, or fewer ranks on this machine");
  }
  std::memset(pointer, 0, rounded);
  return pointer;
}

void CpuDevice::Free(void* pointer) noexcept { std::free(pointer); }

void CpuDevice::CopyToHost(void* host, const void* device, size_t bytes) {
  if (bytes) std::memcpy(host, device, bytes);
}

void CpuDevice::CopyFromHost(void* device, const void* host, size_t bytes) {
  if (bytes) std::memcpy(device, host, bytes);
}

CpuPool& CpuPoolOf(const Stream& stream) {
  YM_CHECK(stream.kind() == DeviceKind::kCpu, "a cpu op on the ", DeviceKindName(stream.kind()),
           " device");
  return static_cast<CpuDevice&>(stream.device()).pool();
}

std::unique_ptr<Device> MakeCpuDevice(const CpuOptions& options) {
  YM_CHECK_GE(options.threads, 0);
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return std::make_unique<CpuDevice>(
      std::min(options.threads ? options.threads : cores, kMaxThreads));
}

}  // namespace yardmaster
