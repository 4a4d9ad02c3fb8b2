// A pair of events around each op, on the op's stream.
#include <algorithm>
#include <deque>
#include <utility>

#include "src/base/check.h"
#include "src/device/cuda/cuda_device.h"

namespace yardmaster {
namespace {

constexpr const char* kOp = "Timeline";

class CudaTimeline : public Timeline {
 public:
  explicit CudaTimeline(const CudaDevice& device) : device_(device) {}

  StepTimes Take() override {
    YM_CHECK(timed_.size() <= spans_.size());
    device_.Check(std::exchange(failed_, cudaSuccess), kOp, "cudaEventRecord");
    StepTimes times;
    for (size_t i = 0; i < timed_.size(); ++i) {
      const Span& span = spans_[i];
      device_.Check(cudaEventSynchronize(span.end.get()), kOp, "cudaEventSynchronize");
      timed_[i].seconds = Seconds(span.begin, span.end);
      times.seconds = std::max(times.seconds, Seconds(spans_[0].begin, span.end));
    }
    times.ops = std::exchange(timed_, {});
    return times;
  }

 protected:
  void Start(void* stream) override {
    if (timed_.size() == spans_.size()) {
      Span& span = spans_.emplace_back();
      device_.Check(cudaEventCreate(span.begin.address()), kOp, "cudaEventCreate");
      device_.Check(cudaEventCreate(span.end.address()), kOp, "cudaEventCreate");
    }
    Record(spans_[timed_.size()].begin, stream);
  }
  void Stop(void* stream) noexcept override {
    Record(spans_[timed_.size()].end, stream);
    timed_.push_back(std::move(now_));
  }

 private:
  struct Span {
    CudaEvent begin, end;
  };
  void Record(const CudaEvent& event, void* stream) noexcept {
    const cudaError_t result = cudaEventRecord(event.get(), device_.StreamOf(stream));
    if (failed_ == cudaSuccess) failed_ = result;
  }
  double Seconds(const CudaEvent& begin, const CudaEvent& end) const {
    float ms = 0;
    device_.Check(cudaEventElapsedTime(&ms, begin.get(), end.get()), kOp, "cudaEventElapsedTime");
    return static_cast<double>(ms) * 1e-3;
  }

  const CudaDevice& device_;
  std::deque<Span> spans_;     // kept for the next step
  std::vector<OpTime> timed_;  // timed_[i] lies in spans_[i]
  cudaError_t failed_ = cudaSuccess;
};

}  // namespace

std::unique_ptr<Timeline> CudaDevice::MakeTimeline() { return std::make_unique<CudaTimeline>(*this); }

}  // namespace yardmaster
