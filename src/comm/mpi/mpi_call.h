// File: src/comm/mpi/mpi_call.h
//
// What the MPI files share: checked calls and waits with a deadline. Private to src/comm/mpi.
#pragma once

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/strings.h"

namespace yardmaster {

struct MpiState {
  double timeout_seconds = 600;
  int64_t max_message_bytes = int64_t{1} << 28;
  int world_rank = 0, world_size = 1;
  bool oversubscribed =
      false;  // more ranks than cores on this machine: a waiting rank must give way at once
  bool broken = false;  // a deadline was missed: nothing but Abort may follow
};

[[noreturn]] inline void MpiFailed(int code, const char* call, const char* file, int line) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ExitCode::kInternal,
              StrCat(call, ": ", std::string(text, static_cast<size_t>(length))),
              StrCat(file, ":", line));
}

#define YM_MPI(call)                                                                           \
  do {                                                                                         \
    const int ym_code_ = (call);                                                               \
    if (ym_code_ != MPI_SUCCESS) ::yardmaster::MpiFailed(ym_code_, #call, __FILE__, __LINE__); \
  } while (0)

// Waits for all requests, making progress. On expiry of the deadline: Error(kWatchdog); the
// requests stay open, but MPI moves data only within its calls and none follows, so their buffers
// may go. `what` completes "waited for ..."; `peer(i)` names whom request i depends on.
void MpiWait(MpiState& state, std::vector<MPI_Request>& requests, const std::string& what,
             const std::function<std::string(size_t)>& peer);

// Throws when MPI is no longer usable.
void MpiCheckUsable(const MpiState& state);

}  // namespace yardmaster
