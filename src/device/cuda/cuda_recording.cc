// A CUDA graph of what one stream, and those that wait for it, are given between two calls.
#include "src/device/cuda/cuda_device.h"

namespace yardmaster {
namespace {

constexpr const char* kOp = "Record";

class CudaRecording : public Recording {
 public:
  CudaRecording(const CudaDevice& device, cudaStream_t stream, CudaGraphExec exec)
      : device_(device), stream_(stream), exec_(std::move(exec)) {}
  void Replay() override {
    device_.Check(cudaGraphLaunch(exec_.get(), stream_), "Replay", "cudaGraphLaunch");
  }

 private:
  const CudaDevice& device_;
  cudaStream_t stream_;
  CudaGraphExec exec_;
};

}  // namespace

std::unique_ptr<Recording> CudaDevice::Record(const Stream& stream, const std::function<void()>& enqueue) {
  MakeCurrent();
  const cudaStream_t s = StreamOf(stream.handle());
  CudaGraph graph;
  // Global: whatever a capture cannot hold, from any thread, is an error and not an accident.
  Check(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), kOp, "cudaStreamBeginCapture");
  try {
    enqueue();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(s, graph.address()));
    static_cast<void>(cudaGetLastError());  // the first error is the one that is told
    throw;
  }
  Check(cudaStreamEndCapture(s, graph.address()), kOp, "cudaStreamEndCapture");
  CudaGraphExec exec;
  Check(cudaGraphInstantiate(exec.address(), graph.get(), cudaGraphInstantiateFlagUseNodePriority), kOp, "cudaGraphInstantiate");
  Check(cudaGraphUpload(exec.get(), s), kOp, "cudaGraphUpload");
  return std::make_unique<CudaRecording>(*this, s, std::move(exec));
}

}  // namespace yardmaster
