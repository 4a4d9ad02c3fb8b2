// File: src/device/cuda/cuda_device.h
//
// The cuda device: one GPU, plain cudaMalloc memory, one compute stream. Stream(device) without a handle means the compute
// stream; it is non-blocking, so that it can be captured in a graph and never waits for the legacy stream.
// Everything a step needs is made at start: the streams, the libraries' workspaces, pinned staging buffers.
// One host thread at a time uses a device.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <vector>

#include "src/base/error.h"
#include "src/device/cuda/cuda_handles.h"
#include "src/device/cuda/make_cuda_device.h"
#include "src/device/device.h"

namespace yardmaster {

struct CudaProperties {
  std::string name;
  int sm = 0;               // 90 for compute capability 9.0
  int multiprocessors = 0;
  size_t l2_bytes = 0;
  size_t total_bytes = 0;
};

class CudaDevice : public Device {
 public:
  // cuBLASLt wants 32 MiB on Hopper and more for a few split-K shapes.
  static constexpr size_t kLibraryWorkspace = size_t{64} << 20;

  explicit CudaDevice(const CudaOptions& options);
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string description() const override;
  void* Allocate(size_t bytes) override;
  void Free(void* pointer) noexcept override;
  void CopyToHost(void* host, const void* device, size_t bytes) override;
  void CopyFromHost(void* device, const void* host, size_t bytes) override;
  void StageFromHost(void* device, const void* host, size_t bytes) override;
  std::unique_ptr<HostCopy> MakeHostCopy(size_t bytes) override;
  bool runs_behind() const override { return true; }
  void Synchronize(void* stream_handle) override;
  Stream AddStream() override;  // with a library workspace of its own
  void Order(void* earlier, void* later) override;
  size_t library_bytes() const override;
  size_t used_bytes() const override;
  size_t total_bytes() const override { return properties_.total_bytes; }
  bool records() const override { return true; }
  std::unique_ptr<Recording> Record(const Stream& stream, const std::function<void()>& enqueue) override;
  std::unique_ptr<Timeline> MakeTimeline() override;

  const CudaProperties& properties() const { return properties_; }
  int index() const { return options_.index; }
  int rank() const { return options_.rank; }
  cudaStream_t compute_stream() const { return streams_.front().stream.get(); }
  cudaStream_t StreamOf(void* handle) const { return handle ? static_cast<cudaStream_t>(handle) : compute_stream(); }

  // kLibraryWorkspace bytes that belong to what runs on `stream`.
  void* LibraryWorkspace(cudaStream_t stream) const;

  // One T per device, made from the device at first use (at start, or in a step's first, uncaptured run) and destroyed
  // before it: library handles and plan caches of ops.
  template <class T>
  T& Extension() {
    std::shared_ptr<void>& slot = extensions_[std::type_index(typeid(T))];
    if (slot == nullptr) {
      MakeCurrent();
      slot = std::make_shared<T>(*this);
    }
    return *static_cast<T*>(slot.get());
  }

  // Throws if `result` is an error: says the op, the call, the device and the rank.
  void Check(cudaError_t result, const char* op, const char* call) const;
  // The same for a library with its own codes. `text` is the library's name for the error.
  [[noreturn]] void Fail(const std::string& text, const char* op, const char* call, ExitCode code = ExitCode::kInternal) const;

 private:
  struct OwnedStream {
    CudaStreamHandle stream;
    DeviceBuffer workspace;
  };
  struct Staging {
    PinnedBuffer buffer;
    CudaEvent free;    // the last copy from or to the buffer is done
    size_t bytes = 0;  // of the buffer
  };
  void MakeCurrent() const;
  std::string Where() const;

  CudaOptions options_;
  CudaProperties properties_;
  std::string versions_;
  std::vector<OwnedStream> streams_;
  CudaEvent order_;  // of Order: a wait keeps the state that the event had when it was enqueued
  Staging staging_[2];
  Staging ordered_[kStagedCopies];  // of StageFromHost, in turn; they grow with what is copied
  int next_ordered_ = 0;
  std::map<std::type_index, std::shared_ptr<void>> extensions_;
};

}  // namespace yardmaster
