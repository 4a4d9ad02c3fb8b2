// File: src/device/device.h
//
// A Device owns memory and executes ops in the order of a Stream. Three kinds:
//   cpu   the readable oracle: ops run at once, in float or double
//   cuda  the product (device/cuda)
//   dry   plans: arenas count bytes, ops check shapes and do nothing. A whole training step on the dry device gives the
//         exact memory of every arena, for any layout, on any machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "src/device/timeline.h"
#include "src/tensor/tensor.h"

namespace yardmaster {

class Stream;

enum class DeviceKind : uint8_t { kCpu, kCuda, kDry };

inline const char* DeviceKindName(DeviceKind k) {
  return k == DeviceKind::kCpu ? "cpu" : k == DeviceKind::kCuda ? "cuda" : "dry";
}

class Stream;

// Work that was recorded once and can be enqueued again, in one call: a CUDA graph. It keeps the addresses
// and the numbers that the host gave; what changes from one replay to the next must lie in device memory.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void Replay() = 0;  // on the stream that it was recorded from; returns at once
};

// Host memory that a step's ops are copied to in their order, so that the host can read what one step left
// while the device works on the next.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
  // At most the bytes that it was made for.
  virtual void Enqueue(const Stream& stream, const void* device, size_t bytes) = 0;
  virtual const void* Wait() = 0;  // until what was enqueued last is there; waits for nothing behind it
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string description() const = 0;             // "cpu (2 threads, OpenBLAS 0.3.21)"
  virtual void* Allocate(size_t bytes) = 0;                // at least 256-byte aligned, zeroed; throws Error with the size if there is none
  virtual void Free(void* pointer) noexcept = 0;
  virtual void CopyToHost(void* host, const void* device, size_t bytes) = 0;    // waits; not for use inside a step
  virtual void CopyFromHost(void* device, const void* host, size_t bytes) = 0;  // waits
  // In the order of the first stream's ops: what they have been given sees the old bytes, what follows the
  // new ones. `host` may be changed on return. Waits only while kStagedCopies such copies are under way.
  static constexpr int kStagedCopies = 4;
  virtual void StageFromHost(void* device, const void* host, size_t bytes) {
    CopyFromHost(device, host, bytes);
  }
  virtual std::unique_ptr<HostCopy> MakeHostCopy(size_t bytes);  // at start only
  virtual bool runs_behind() const { return false; }  // ops may be done after they returned
  virtual void Synchronize(void* stream_handle) { static_cast<void>(stream_handle); }  // waits for a stream's ops
  // A stream for work beside the first, at start only; lives as long as the device. Where ops are done when they return
  // there is one stream.
  virtual Stream AddStream();
  // What is enqueued on `later` from now on waits for what has been enqueued on `earlier` (streams' handles).
  virtual void Order(void* earlier, void* later) { static_cast<void>(earlier), static_cast<void>(later); }
  virtual size_t library_bytes() const { return 0; }       // workspaces of libraries, taken when the device was made
  virtual size_t used_bytes() const { return 0; }          // of its memory, by whomever; 0: not known
  virtual size_t total_bytes() const { return 0; }         // of memory that is its own; 0: not known
  virtual DeviceKind target() const { return kind(); }     // of the dry device: the kind that it plans for

  // Records what `enqueue` enqueues on `stream`, and on streams that wait for it, without running it.
  // Everything in it must have run once before (plans and kernels are loaded at first use); whatever
  // allocates or waits throws Error.
  virtual bool records() const { return false; }
  virtual std::unique_ptr<Recording> Record(const Stream& stream, const std::function<void()>& enqueue);

  virtual std::unique_ptr<Timeline> MakeTimeline();
  // Null (always, but while a step is timed): ops are not timed. A recording must not be made meanwhile.
  Timeline* timeline() const { return timeline_; }
  void set_timeline(Timeline* timeline) { timeline_ = timeline; }

 private:
  Timeline* timeline_ = nullptr;
};

// Ops are enqueued on a Stream and may return before they are done; on cpu they are done. Cheap to copy.
class Stream {
 public:
  Stream(Device* device, void* handle = nullptr) : device_(device), handle_(handle) {}
  Device& device() const { return *device_; }
  DeviceKind kind() const { return device_->kind(); }
  bool dry() const { return kind() == DeviceKind::kDry; }
  DeviceKind target() const { return device_->target(); }  // whose workspaces an op allocates
  void* handle() const { return handle_; }  // cudaStream_t on cuda
  void Synchronize() const;                 // never inside a step
  // What this stream is given from now on waits for what `earlier`, of the same device, has been given. Never waits
  // itself.
  void After(const Stream& earlier) const { device_->Order(earlier.handle_, handle_); }

 private:
  Device* device_;
  void* handle_;
};

struct CpuOptions {
  int threads = 0;  // cores of this machine / ranks on it, given by the caller; 0: all cores. Results do not depend on it
};
std::unique_ptr<Device> MakeCpuDevice(const CpuOptions& options);
std::unique_ptr<Device> MakeDryDevice(DeviceKind plans_for = DeviceKind::kCpu);  // the cuda device: device/cuda/make_cuda_device.h

}  // namespace yardmaster
