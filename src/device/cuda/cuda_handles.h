// File: src/device/cuda/cuda_handles.h
//
// Owners of CUDA's handles: move-only, and destructors that never throw (what cannot be released any more is left to the
// driver, which frees it with the context). Creation reports through the returned cudaError_t, because only the caller
// knows the rank and the op.
#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace yardmaster {

template <class Handle, cudaError_t (*kDestroy)(Handle)>
class CudaHandle {
 public:
  CudaHandle() = default;
  explicit CudaHandle(Handle handle) : handle_(handle) {}
  CudaHandle(CudaHandle&& o) noexcept : handle_(std::exchange(o.handle_, Handle{})) {}
  CudaHandle& operator=(CudaHandle&& o) noexcept {
    std::swap(handle_, o.handle_);
    return *this;
  }
  ~CudaHandle() {
    if (handle_ != Handle{}) static_cast<void>(kDestroy(handle_));
  }
  Handle get() const { return handle_; }
  Handle* address() { return &handle_; }  // for the creating call

 private:
  Handle handle_{};
};

namespace internal {
inline cudaError_t FreeDevice(void* p) { return cudaFree(p); }
inline cudaError_t FreePinned(void* p) { return cudaFreeHost(p); }
inline cudaError_t DestroyStream(cudaStream_t s) { return cudaStreamDestroy(s); }
inline cudaError_t DestroyEvent(cudaEvent_t e) { return cudaEventDestroy(e); }
inline cudaError_t DestroyGraph(cudaGraph_t g) { return cudaGraphDestroy(g); }
inline cudaError_t DestroyGraphExec(cudaGraphExec_t g) { return cudaGraphExecDestroy(g); }
}  // namespace internal

using DeviceBuffer = CudaHandle<void*, internal::FreeDevice>;
using PinnedBuffer = CudaHandle<void*, internal::FreePinned>;
using CudaStreamHandle = CudaHandle<cudaStream_t, internal::DestroyStream>;
using CudaEvent = CudaHandle<cudaEvent_t, internal::DestroyEvent>;
using CudaGraph = CudaHandle<cudaGraph_t, internal::DestroyGraph>;
using CudaGraphExec = CudaHandle<cudaGraphExec_t, internal::DestroyGraphExec>;

}  // namespace yardmaster
