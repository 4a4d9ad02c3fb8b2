// The cpu device: host memory, ops that run at once in the calling thread and its pool.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "src/base/check.h"
#include "src/base/strings.h"
#include "src/device/cpu_parallel.h"
#include "src/device/device.h"
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

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int threads) : blas_(PrepareOpenBlas()), pool_(threads) {}
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string description() const override {
    return StrCat("cpu (", pool_.threads(), pool_.threads() == 1 ? " thread, " : " threads, ",
                  blas_, ")");
  }

  void* Allocate(size_t bytes) override {
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
  void Free(void* pointer) noexcept override { std::free(pointer); }
  void CopyToHost(void* host, const void* device, size_t bytes) override {
    if (bytes) std::memcpy(host, device, bytes);
  }
  void CopyFromHost(void* device, const void* host, size_t bytes) override {
    if (bytes) std::memcpy(device, host, bytes);
  }
  CpuPool& pool() { return pool_; }

 private:
  std::string blas_;
  CpuPool pool_;
};

}  // namespace

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
