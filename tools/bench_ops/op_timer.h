// File: tools/bench_ops/op_timer.h
//
// The clock of `yardmaster bench OP` on a GPU (in builds with CUDA alone): CUDA events around each call.
// Before each timed run a buffer larger than L2 is overwritten, so that inputs come from memory, and the GPU
// is busy while the host enqueues the call.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/device/device.h"
#include "tools/bench_ops/bench_op.h"
#include "tools/bench_ops/op_report.h"

namespace yardmaster {

class OpTimer {
 public:
  // `device` is a cuda device; other kinds are a bug of the caller.
  OpTimer(Device& device, int repeats);
  ~OpTimer();
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

  // `warm_seconds` of the call come first: of calls that the clock binds, so that it is that of a long run.
  double MedianMs(const std::function<void()>& call, double warm_seconds = 0);
  BenchCeilings Ceilings(DType work, double warm_seconds);

 private:
  struct Events;
  double Elapsed(const std::function<void()>& call);

  Device& device_;
  int repeats_;
  std::unique_ptr<Events> events_;
  void* flush_;
};

}  // namespace yardmaster
