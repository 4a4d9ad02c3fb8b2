// File: src/device/timeline.h
//
// How long each op of a step takes. A Device hands one out (Device::MakeTimeline); while it is set there,
// every op reports to it (ops/op_args.h). On cpu it reads a clock, on cuda it records events on the op's
// stream: nothing waits until Take. An op that another op calls counts as part of that one. Ops of streams
// that run side by side overlap.
#pragma once

#include <string>
#include <vector>

namespace yardmaster {

struct OpTime {
  std::string op;         // "Gemm"
  std::string what = {};  // sizes that tell the calls of one op apart; "": not said
  double seconds = 0;
  double flops = 0;  // that the result needs; 0: not said
  double bytes = 0;  // that must at least cross to or from memory; 0: not said
};

struct StepTimes {
  std::vector<OpTime> ops;  // in the order of their beginnings
  double seconds = 0;       // from the beginning of the first to the end of the last
};

class Timeline {
 public:
  virtual ~Timeline() = default;
  void Begin(void* stream_handle, const char* op) {
    if (depth_++ > 0) return;
    now_ = {.op = op};
    Start(stream_handle);
  }
  bool describes() const { return depth_ == 1; }  // Describe speaks of the op that is recorded
  void Describe(std::string what, double flops, double bytes) {
    now_.what = std::move(what), now_.flops = flops, now_.bytes = bytes;
  }
  void End(void* stream_handle) noexcept {  // what fails is thrown by Take
    if (--depth_ > 0) return;
    Stop(stream_handle);
  }
  // What was recorded since the last Take; waits for it.
  virtual StepTimes Take() = 0;

 protected:
  virtual void Start(void* stream_handle) = 0;
  virtual void Stop(void* stream_handle) noexcept = 0;  // of now_
  OpTime now_;

 private:
  int depth_ = 0;
};

}  // namespace yardmaster
