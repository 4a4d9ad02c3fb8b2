// File: src/comm/nccl/operation_log.h
//
// What this rank has begun together with others: every collective, dispatch and combine on the GPU, and every
// wait of the host while groups are made, has a number, a name and a group. An operation is 'entered' before
// it is enqueued and 'finished' when its event has passed on its stream. The step records events and reads
// none; watchdog.h looks at them from a thread of its own.
//
// Operations that are captured in a graph leave marks in pinned memory instead, and the replay of the graph
// is one operation: what it waits for follows from the last mark.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "src/device/cuda/cuda_device.h"

namespace yardmaster {

class OperationLog {
 public:
  explicit OperationLog(CudaDevice* device);
  OperationLog(const OperationLog&) = delete;
  OperationLog& operator=(const OperationLog&) = delete;

  // Returns the number of the operation, counted from 1. `group` and `what` are cut to a fixed length.
  int64_t Enter(const char* group, const char* what, int64_t bytes);
  // The operation was enqueued on `stream`, or captured: then it counts as finished, and has its mark.
  void Enqueued(int64_t number, cudaStream_t stream);
  // A graph that was captured last was launched on `stream`.
  void Replayed(cudaStream_t stream);
  // A wait of the host is over.
  void Finished(int64_t number);

  struct State {
    int64_t entered = 0;     // number of the last operation
    int64_t unfinished = 0;  // the first that has not finished; 0: none
    std::string waits_for;   // what that is: "#41 all-reduce of dp, 4096 bytes"
  };
  // From any thread.
  State Look();
  // The last operations, newest last, with what became of each; for a report.
  std::vector<std::string> Last(int count);

 private:
  enum class Status : uint8_t { kEntered, kEnqueued, kFinished };
  struct Entry {
    int64_t number = 0, bytes = 0;
    char group[16] = "", what[40] = "";
    Status status = Status::kFinished;
    bool replay = false;
    CudaEvent event;
  };
  Entry& At(int64_t number) { return entries_[static_cast<size_t>(number) % entries_.size()]; }
  bool IsFinished(Entry& entry);
  void Capture(Entry& entry, unsigned long long graph, cudaStream_t stream);
  std::string Text(const Entry& entry) const;

  CudaDevice* device_;
  std::mutex mutex_;
  std::vector<Entry> entries_;  // a ring: the host runs at most a launch queue ahead of the GPU
  int64_t entered_ = 0, first_unfinished_ = 1;
  unsigned long long graph_ = 0;       // the capture that captured_ belongs to
  std::vector<std::string> captured_;  // its operations
  PinnedBuffer mark_;                  // int64: how many of them are done in the running replay
  int64_t* device_mark_ = nullptr;     // the same as the device sees it
};

// The time between entering and enqueueing; the enqueued operation ends with its event.
class Operation {
 public:
  Operation(OperationLog& log, cudaStream_t stream, const char* group, const char* what, int64_t bytes)
      : log_(log), stream_(stream), number_(log.Enter(group, what, bytes)) {}
  ~Operation() { log_.Enqueued(number_, stream_); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

 private:
  OperationLog& log_;
  cudaStream_t stream_;
  int64_t number_;
};

// A wait of the host for other ranks.
class HostOperation {
 public:
  HostOperation(OperationLog& log, const char* group, const char* what)
      : log_(log), number_(log.Enter(group, what, 0)) {}
  ~HostOperation() { log_.Finished(number_); }
  HostOperation(const HostOperation&) = delete;
  HostOperation& operator=(const HostOperation&) = delete;

 private:
  OperationLog& log_;
  int64_t number_;
};

}  // namespace yardmaster
