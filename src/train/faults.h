// File: src/train/faults.h
//
// Makes one rank misbehave at one step on purpose, so that tests can prove what the others do. Off unless the
// environment variable YARDMASTER_FAULT_STEP is set (docs/faults.md):
//   YARDMASTER_FAULT_STEP="kind=nan,rank=1,step=3,count=2"
// Faults of files are in base/file_faults.h.
#pragma once

#include <cstdint>
#include <string>

#include "src/train/engine.h"

namespace yardmaster {

struct StepFault {
  // nan: a gradient becomes NaN when it is written, before it is reduced.
  // flip: a bit of a weight, in a recipe of its 8-bit copy, flips after the step.
  // count: a (token, expert) pair vanishes from the load.   throw: reading the batch fails.
  // bug: an exception within the step, of which the others learn nothing.
  // stall: the rank does nothing any more.   kill: SIGKILL before the step.
  std::string kind;
  int64_t rank = 0, step = 0, count = 1;  // count: steps in a row
  std::string tensor;                     // nan, flip: the first parameter whose name contains this
};

StepFault ParseStepFault(const std::string& text);  // throws ConfigError for what it does not understand

class StepFaults {
 public:
  StepFaults() = default;
  // Of this process, one of `ranks`; reads the environment. Throws ConfigError for text that it does not understand and
  // for a rank that is not there.
  StepFaults(int64_t rank, int64_t ranks);
  bool armed() const { return !fault_.kind.empty(); }  // for some step of some rank: the environment is the same on all
  void BeforeBatch(int64_t step) const;   // may throw DataError, stall or kill
  void AfterBackward(int64_t step, Engine& engine) const;
  void AfterStep(int64_t step, Engine& engine) const;

 private:
  bool At(int64_t step, const char* kind) const;
  StepFault fault_;
  bool mine_ = false;
};

}  // namespace yardmaster
