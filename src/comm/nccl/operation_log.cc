#include "src/comm/nccl/operation_log.h"

#include <algorithm>
#include <cstdio>

#include "kernels/mark/mark.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

constexpr size_t kKept = 2048;

template <size_t kSize>
void CopyText(char (&to)[kSize], const char* from) {
  std::snprintf(to, kSize, "%s", from);
}

}  // namespace

OperationLog::OperationLog(CudaDevice* device) : device_(device), entries_(kKept) {
  for (Entry& entry : entries_) {
    device_->Check(cudaEventCreateWithFlags(entry.event.address(), cudaEventDisableTiming), "start",
                   "cudaEventCreateWithFlags");
  }
  device_->Check(cudaHostAlloc(mark_.address(), sizeof(int64_t), cudaHostAllocMapped), "start",
                 "cudaHostAlloc");
  *static_cast<int64_t*>(mark_.get()) = 0;
  void* device_mark = nullptr;
  device_->Check(cudaHostGetDevicePointer(&device_mark, mark_.get(), 0), "start", "cudaHostGetDevicePointer");
  device_mark_ = static_cast<int64_t*>(device_mark);
  // Loaded now: a kernel's first launch must not be in a capture.
  device_->Check(WriteMark(device_mark_, 0, device_->compute_stream()), "start", "WriteMark");
}

int64_t OperationLog::Enter(const char* group, const char* what, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = At(++entered_);
  entry.number = entered_;
  entry.bytes = bytes;
  entry.status = Status::kEntered;
  entry.replay = false;
  CopyText(entry.group, group);
  CopyText(entry.what, what);
  return entered_;
}

void OperationLog::Enqueued(int64_t number, cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = At(number);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  unsigned long long graph = 0;
  if (cudaStreamGetCaptureInfo(stream, &capture, &graph) == cudaSuccess &&
      capture == cudaStreamCaptureStatusActive)
    return Capture(entry, graph, stream);
  // An event that cannot be recorded belongs to a broken device: the next checked call says so.
  entry.status =
      cudaEventRecord(entry.event.get(), stream) == cudaSuccess ? Status::kEnqueued : Status::kFinished;
}

void OperationLog::Capture(Entry& entry, unsigned long long graph, cudaStream_t stream) {
  if (graph != graph_) captured_.clear();
  graph_ = graph;
  entry.status = Status::kFinished;
  captured_.push_back(Text(entry));
  // Without the mark the replay would be watched all the same, as a whole.
  static_cast<void>(WriteMark(device_mark_, static_cast<int64_t>(captured_.size()), stream));
}

void OperationLog::Replayed(cudaStream_t stream) {
  const int64_t number = Enter("", "replay of a graph", 0);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    At(number).replay = true;
  }
  Enqueued(number, stream);
}

void OperationLog::Finished(int64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  At(number).status = Status::kFinished;
}

bool OperationLog::IsFinished(Entry& entry) {
  if (entry.status == Status::kEnqueued && cudaEventQuery(entry.event.get()) != cudaErrorNotReady)
    entry.status =
        Status::kFinished;  // an error too: nothing more will come, and the host's next call reports it
  return entry.status == Status::kFinished;
}

std::string OperationLog::Text(const Entry& entry) const {
  std::string text =
      StrCat("#", entry.number, " ", entry.what, *entry.group ? StrCat(" of ", entry.group) : "",
             entry.bytes > 0 ? StrCat(", ", entry.bytes, " bytes") : "");
  if (!entry.replay || captured_.empty()) return text;
  // The mark stays where the replay before left it until the first operation of this one is done.
  const auto done =
      static_cast<size_t>(*static_cast<const volatile int64_t*>(mark_.get())) % captured_.size();
  return StrCat(text, " (operation ", done + 1, " of ", captured_.size(), ": ", captured_[done], ")");
}

OperationLog::State OperationLog::Look() {
  const std::lock_guard<std::mutex> lock(mutex_);
  first_unfinished_ = std::max<int64_t>(first_unfinished_, entered_ - static_cast<int64_t>(kKept) + 1);
  while (first_unfinished_ <= entered_ && IsFinished(At(first_unfinished_))) ++first_unfinished_;
  if (first_unfinished_ > entered_) return {entered_, 0, ""};
  return {entered_, first_unfinished_, Text(At(first_unfinished_))};
}

std::vector<std::string> OperationLog::Last(int count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> out;
  for (int64_t n = std::max<int64_t>(1, entered_ - count + 1); n <= entered_; ++n) {
    Entry& entry = At(n);
    const char* status = IsFinished(entry)                   ? "finished"
                         : entry.status == Status::kEnqueued ? "on the GPU"
                                                             : "being started by the host";
    out.push_back(StrCat(Text(entry), ": ", status));
  }
  return out;
}

}  // namespace yardmaster
