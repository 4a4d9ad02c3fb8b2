// File: src/comm/nccl/watchdog.h
//
// A thread that looks at the operation log and costs the step nothing: it asks for the event of the first
// unfinished operation, a few times a second. When that has been the same one for longer than the deadline,
// it calls the roll, says what this rank waited for, who did not arrive and what the last operations were,
// and ends the job (exit code 70). It also answers the roll calls of others, so that a rank that is merely
// behind is told from one that is gone.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/comm/nccl/operation_log.h"
#include "src/comm/roll_call.h"

namespace yardmaster {

struct WatchdogOptions {
  double timeout_seconds = 600;
  // What has gone wrong in the library, or "": looked at as often as the log.
  std::function<std::string()> library_error;
  // Ends the job; called once, from the watchdog's thread.
  std::function<void()> abort;
};

class Watchdog {
 public:
  // `roll_call` may be null: then nobody is named. `device` is the log's.
  Watchdog(const WatchdogOptions& options, int device, std::shared_ptr<OperationLog> log,
           std::unique_ptr<RollCall> roll_call);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Loop(int device);
  std::string Mine();
  void Expire(const std::string& why);

  WatchdogOptions options_;
  std::shared_ptr<OperationLog> log_;
  std::unique_ptr<RollCall> roll_call_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// "rank 2 did not answer; rank 1 has not begun it (last: ...)": what the answers to a roll call
// (watchdog.cc's form) say of an operation with this number. Pure.
std::string WhoIsMissing(const std::vector<std::string>& answers, int64_t number);
// The answer of a rank that has entered so many operations.
std::string RollCallAnswer(int64_t entered, const std::string& last);

}  // namespace yardmaster
