// File: src/base/error.h
//
// One error vocabulary. A user's mistake or a broken environment (config, data, checkpoint, disk, layout) throws a
// `yardmaster::Error`: one message that says what, where and what to do, with the exit code that main() returns.
// A bug throws `InternalError` through YM_CHECK (check.h). Nothing below tools/ ends the process itself.
#pragma once

#include <stdexcept>
#include <string>

namespace yardmaster {

// Exit codes of the binary. They survive mpirun (Open MPI 4.1). docs/faults.md explains each to a user.
enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,          // a bug in Yardmaster, or parity over tolerance
  kConfig = 2,            // config, command line or layout
  kData = 3,              // training data missing, damaged or changed
  kCheckpoint = 4,        // checkpoint missing, damaged or of another run
  kDiskFull = 5,          // no space or quota left where it cannot be survived
  kSuspectHardware = 16,  // restart on other hardware
  kCorruption = 17,       // silent data corruption confirmed
  kWatchdog = 70,         // a rank did not arrive within the deadline
  kStopped = 75,          // stopped on request; resumable
  kDoNotRestart = 93,
};

// `where` names the place (file:line:column, tensor, rank), `hint` what to do; both may be empty.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what, const std::string& where = "", const std::string& hint = "");
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

inline Error ConfigError(const std::string& what, const std::string& where = "", const std::string& hint = "") {
  return Error(ExitCode::kConfig, what, where, hint);
}
inline Error DataError(const std::string& what, const std::string& where = "", const std::string& hint = "") {
  return Error(ExitCode::kData, what, where, hint);
}
inline Error CheckpointError(const std::string& what, const std::string& where = "", const std::string& hint = "") {
  return Error(ExitCode::kCheckpoint, what, where, hint);
}

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace yardmaster
