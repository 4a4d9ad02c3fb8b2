#include "src/device/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>

#include "src/base/check.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

constexpr size_t kStagingBytes = size_t{16} << 20;

#define YM_DEVICE_CHECK(op, call) Check((call), (op), #call)

ExitCode ExitCodeOf(cudaError_t e) {
  switch (e) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorContained: return ExitCode::kSuspectHardware;
    case cudaErrorMemoryAllocation:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable: return ExitCode::kConfig;
    default: return ExitCode::kInternal;
  }
}

}  // namespace

CudaDevice::CudaDevice(const CudaOptions& options) : options_(options) {
  const CudaStatus status = CudaAvailability();
  if (options.index < 0 || options.index >= status.usable) {
    throw ConfigError(StrCat("cuda device ", options.index, " is not there: ", status.reason),
                      StrCat("rank ", options.rank), "choose the cpu device (runtime.device, or --device), or start fewer ranks on this machine");
  }
  cudaDeviceProp p{};
  YM_DEVICE_CHECK("start", cudaSetDevice(options.index));
  YM_DEVICE_CHECK("start", cudaGetDeviceProperties(&p, options.index));
  properties_ = {.name = p.name, .sm = p.major * 10 + p.minor, .multiprocessors = p.multiProcessorCount,
                 .l2_bytes = static_cast<size_t>(p.l2CacheSize), .total_bytes = p.totalGlobalMem};
  int runtime = 0, driver = 0;
  YM_DEVICE_CHECK("start", cudaRuntimeGetVersion(&runtime));
  YM_DEVICE_CHECK("start", cudaDriverGetVersion(&driver));
  versions_ = StrCat("CUDA ", runtime / 1000, ".", runtime % 1000 / 10, ", driver for ", driver / 1000, ".", driver % 1000 / 10);
  CudaDevice::AddStream();
  YM_DEVICE_CHECK("start", cudaEventCreateWithFlags(order_.address(), cudaEventDisableTiming));
  for (Staging& s : ordered_)
    YM_DEVICE_CHECK("start", cudaEventCreateWithFlags(s.free.address(), cudaEventDisableTiming));
  for (Staging& s : staging_) {
    YM_DEVICE_CHECK("start", cudaMallocHost(s.buffer.address(), kStagingBytes));
    YM_DEVICE_CHECK("start", cudaEventCreateWithFlags(s.free.address(), cudaEventDisableTiming));
  }
}

CudaDevice::~CudaDevice() {
  static_cast<void>(cudaSetDevice(options_.index));
  static_cast<void>(cudaDeviceSynchronize());
  extensions_.clear();
}

std::string CudaDevice::Where() const {
  return StrCat("cuda device ", options_.index, properties_.name.empty() ? "" : StrCat(" (", properties_.name, ")"), ", rank ",
                options_.rank);
}

std::string CudaDevice::description() const {
  return StrCat("cuda ", options_.index, " (", properties_.name, ", ", HumanBytes(static_cast<double>(properties_.total_bytes)),
                ", ", properties_.multiprocessors, " multiprocessors, ", versions_, ")");
}

void CudaDevice::Check(cudaError_t result, const char* op, const char* call) const {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // a sticky error stays; any other must not be blamed on the next op
  Fail(StrCat(cudaGetErrorName(result), ": ", cudaGetErrorString(result)), op, call, ExitCodeOf(result));
}

void CudaDevice::Fail(const std::string& text, const char* op, const char* call, ExitCode code) const {
  throw Error(code, StrCat(op, " failed on the GPU: ", text, " from ", call), Where(),
              code == ExitCode::kInternal ? "an earlier kernel may be the cause: run again with CUDA_LAUNCH_BLOCKING=1" : "");
}

void CudaDevice::MakeCurrent() const { YM_DEVICE_CHECK("cudaSetDevice", cudaSetDevice(options_.index)); }

void* CudaDevice::Allocate(size_t bytes) {
  MakeCurrent();
  void* pointer = nullptr;
  const cudaError_t result = cudaMalloc(&pointer, std::max<size_t>(bytes, 1));
  if (result == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    size_t free = 0, total = 0;
    static_cast<void>(cudaMemGetInfo(&free, &total));
    throw Error(ExitCode::kConfig,
                StrCat("no memory for ", HumanBytes(static_cast<double>(bytes)), " (", bytes, " bytes); free: ",
                       HumanBytes(static_cast<double>(free)), " of ", HumanBytes(static_cast<double>(total))),
                Where(), "use a smaller micro-batch, sequence length or model, or more ranks");
  }
  Check(result, "Allocate", "cudaMalloc");
  YM_DEVICE_CHECK("Allocate", cudaMemsetAsync(pointer, 0, std::max<size_t>(bytes, 1), compute_stream()));
  YM_DEVICE_CHECK("Allocate", cudaStreamSynchronize(compute_stream()));
  return pointer;
}

void CudaDevice::Free(void* pointer) noexcept {
  if (pointer == nullptr) return;
  static_cast<void>(cudaSetDevice(options_.index));
  static_cast<void>(cudaFree(pointer));
}

// Both copies see what every stream has done, and go through two pinned buffers in turn, so that the host's copy of one
// chunk overlaps the device's copy of the other.
void CudaDevice::CopyToHost(void* host, const void* device, size_t bytes) {
  MakeCurrent();
  YM_DEVICE_CHECK("CopyToHost", cudaDeviceSynchronize());
  const size_t chunks = (bytes + kStagingBytes - 1) / kStagingBytes;
  for (size_t i = 0; i <= chunks; ++i) {  // chunk i starts while chunk i - 1 is unpacked
    if (i < chunks) {
      Staging& s = staging_[i % 2];
      const size_t size = std::min(kStagingBytes, bytes - i * kStagingBytes);
      YM_DEVICE_CHECK("CopyToHost", cudaMemcpyAsync(s.buffer.get(), static_cast<const char*>(device) + i * kStagingBytes, size,
                                                    cudaMemcpyDeviceToHost, compute_stream()));
      YM_DEVICE_CHECK("CopyToHost", cudaEventRecord(s.free.get(), compute_stream()));
    }
    if (i > 0) {
      Staging& s = staging_[(i - 1) % 2];
      YM_DEVICE_CHECK("CopyToHost", cudaEventSynchronize(s.free.get()));
      std::memcpy(static_cast<char*>(host) + (i - 1) * kStagingBytes, s.buffer.get(),
                  std::min(kStagingBytes, bytes - (i - 1) * kStagingBytes));
    }
  }
}

void CudaDevice::CopyFromHost(void* device, const void* host, size_t bytes) {
  MakeCurrent();
  YM_DEVICE_CHECK("CopyFromHost", cudaDeviceSynchronize());
  for (size_t at = 0, i = 0; at < bytes; at += kStagingBytes, ++i) {
    Staging& s = staging_[i % 2];
    const size_t size = std::min(kStagingBytes, bytes - at);
    YM_DEVICE_CHECK("CopyFromHost", cudaEventSynchronize(s.free.get()));
    std::memcpy(s.buffer.get(), static_cast<const char*>(host) + at, size);
    YM_DEVICE_CHECK("CopyFromHost", cudaMemcpyAsync(static_cast<char*>(device) + at, s.buffer.get(), size,
                                                    cudaMemcpyHostToDevice, compute_stream()));
    YM_DEVICE_CHECK("CopyFromHost", cudaEventRecord(s.free.get(), compute_stream()));
  }
  YM_DEVICE_CHECK("CopyFromHost", cudaStreamSynchronize(compute_stream()));
}

void CudaDevice::StageFromHost(void* device, const void* host, size_t bytes) {
  MakeCurrent();
  Staging& s = ordered_[next_ordered_];
  next_ordered_ = (next_ordered_ + 1) % kStagedCopies;
  YM_DEVICE_CHECK("StageFromHost", cudaEventSynchronize(s.free.get()));
  if (s.bytes < bytes) {
    s.bytes = 0;
    s.buffer = PinnedBuffer();
    YM_DEVICE_CHECK("StageFromHost", cudaMallocHost(s.buffer.address(), bytes));
    s.bytes = bytes;
  }
  std::memcpy(s.buffer.get(), host, bytes);
  YM_DEVICE_CHECK("StageFromHost",
                  cudaMemcpyAsync(device, s.buffer.get(), bytes, cudaMemcpyHostToDevice, compute_stream()));
  YM_DEVICE_CHECK("StageFromHost", cudaEventRecord(s.free.get(), compute_stream()));
}

namespace {

class CudaHostCopy : public HostCopy {
 public:
  CudaHostCopy(CudaDevice* device, size_t bytes) : device_(device), bytes_(bytes) {
    device_->Check(cudaMallocHost(memory_.address(), std::max<size_t>(bytes, 1)), "MakeHostCopy",
                   "cudaMallocHost");
    device_->Check(cudaEventCreateWithFlags(there_.address(), cudaEventDisableTiming), "MakeHostCopy",
                   "cudaEventCreateWithFlags");
  }
  void Enqueue(const Stream& stream, const void* device, size_t bytes) override {
    YM_CHECK_LE(bytes, bytes_);
    const cudaStream_t s = device_->StreamOf(stream.handle());
    device_->Check(cudaMemcpyAsync(memory_.get(), device, bytes, cudaMemcpyDeviceToHost, s), "HostCopy",
                   "cudaMemcpyAsync");
    device_->Check(cudaEventRecord(there_.get(), s), "HostCopy", "cudaEventRecord");
  }
  const void* Wait() override {
    device_->Check(cudaEventSynchronize(there_.get()), "HostCopy", "cudaEventSynchronize");
    return memory_.get();
  }

 private:
  CudaDevice* device_;
  size_t bytes_;
  PinnedBuffer memory_;
  CudaEvent there_;
};

}  // namespace

std::unique_ptr<HostCopy> CudaDevice::MakeHostCopy(size_t bytes) {
  MakeCurrent();
  return std::make_unique<CudaHostCopy>(this, bytes);
}

void CudaDevice::Synchronize(void* stream_handle) {
  MakeCurrent();
  YM_DEVICE_CHECK("Synchronize", cudaStreamSynchronize(StreamOf(stream_handle)));
}

Stream CudaDevice::AddStream() {
  MakeCurrent();
  OwnedStream owned;
  // What the others carry is communication, for which computation waits in the end: its blocks go first where a
  // multiprocessor comes free. Behind kernels that fill the GPU it would wait for each to end.
  int least = 0, greatest = 0;
  YM_DEVICE_CHECK("AddStream", cudaDeviceGetStreamPriorityRange(&least, &greatest));
  YM_DEVICE_CHECK("AddStream", cudaStreamCreateWithPriority(owned.stream.address(), cudaStreamNonBlocking,
                                                            streams_.empty() ? least : greatest));
  YM_DEVICE_CHECK("AddStream", cudaMalloc(owned.workspace.address(), kLibraryWorkspace));
  streams_.push_back(std::move(owned));
  return Stream(this, streams_.back().stream.get());
}

void CudaDevice::Order(void* earlier, void* later) {
  if (StreamOf(earlier) == StreamOf(later)) return;
  MakeCurrent();
  YM_DEVICE_CHECK("Order", cudaEventRecord(order_.get(), StreamOf(earlier)));
  YM_DEVICE_CHECK("Order", cudaStreamWaitEvent(StreamOf(later), order_.get(), 0));
}

void* CudaDevice::LibraryWorkspace(cudaStream_t stream) const {
  for (const OwnedStream& s : streams_) {
    if (s.stream.get() == stream) return s.workspace.get();
  }
  YM_CHECK(false, "a stream without a library workspace: make it with CudaDevice::AddStream");
  return nullptr;
}

size_t CudaDevice::used_bytes() const {
  MakeCurrent();
  size_t free = 0, total = 0;
  YM_DEVICE_CHECK("used_bytes", cudaMemGetInfo(&free, &total));
  return total - free;
}

size_t CudaDevice::library_bytes() const { return streams_.size() * kLibraryWorkspace; }

std::unique_ptr<Device> MakeCudaDevice(const CudaOptions& options) { return std::make_unique<CudaDevice>(options); }

}  // namespace yardmaster
