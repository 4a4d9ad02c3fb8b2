// File: src/checkpoint/run_lock.h
#pragma once

#include <string>

#include "src/base/agreement.h"

namespace yardmaster {

// Keeps a second run out of run.dir for as long as the object lives: flock on run.dir/.lock, which also holds
// who has it. The kernel gives the lock back when the process ends, however it ends. Rank 0 takes it for all
// ranks.
class RunLock {
 public:
  // Collective. Throws ConfigError on all ranks, with the pid, host and start time of the holder, if it is
  // taken. Makes run_dir. On a file system without locks it warns in `warning()` and goes on.
  RunLock(const std::string& run_dir, Agreement& world);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();
  const std::string& warning() const { return warning_; }

 private:
  void Take(const std::string& run_dir);
  int fd_ = -1;
  std::string warning_;
};

}  // namespace yardmaster
