#include "src/comm/mpi/mpi_call.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "src/base/clock.h"

namespace yardmaster {
namespace {

// How long a wait stays awake before it sleeps between looks. Where every rank has a core, waits
// are mostly short (the ranks do equal work) and sleeping would lengthen them; else the core is
// needed by the rank that is waited for.
constexpr double kAwakeSeconds = 5e-3, kAwakeSecondsOversubscribed = 50e-6;
constexpr int kFirstSleepMicroseconds = 20, kLongestSleepMicroseconds = 500;

std::string Missing(std::vector<MPI_Request>& requests,
                    const std::function<std::string(size_t)>& peer) {
  std::vector<std::string> names;
  for (size_t i = 0; i < requests.size(); ++i) {
    int done = 0;
    if (MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) continue;
    const std::string name = peer(i);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  constexpr size_t kNamed = 8;
  const size_t more = names.size() > kNamed ? names.size() - kNamed : 0;
  names.resize(names.size() - more);
  return StrJoin(names, ", ") + (more ? StrCat(" and ", more, " others") : "");
}

}  // namespace

void MpiCheckUsable(const MpiState& state) {
  if (state.broken) {
    throw Error(ExitCode::kWatchdog, "no communication is possible after a missed deadline",
                StrCat("rank ", state.world_rank, " of ", state.world_size));
  }
}

void MpiWait(MpiState& state, std::vector<MPI_Request>& requests, const std::string& what,
             const std::function<std::string(size_t)>& peer) {
  const double start = NowSeconds();
  const double awake = state.oversubscribed ? kAwakeSecondsOversubscribed : kAwakeSeconds;
  int sleep_microseconds = kFirstSleepMicroseconds;
  for (;;) {
    int done = 0;
    YM_MPI(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                       MPI_STATUSES_IGNORE));
    if (done) return;
    const double waited = NowSeconds() - start;
    if (waited > state.timeout_seconds) {
      state.broken = true;
      throw Error(ExitCode::kWatchdog,
                  StrCat("waited ", HumanSeconds(waited), " for ", what, ": ",
                         Missing(requests, peer), " did not arrive"),
                  StrCat("rank ", state.world_rank, " of ", state.world_size),
                  "look at the log of the ranks that did not arrive; slow but healthy ranks need a "
                  "longer deadline");
    }
    if (waited < awake) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(sleep_microseconds));
      sleep_microseconds = std::min(2 * sleep_microseconds, kLongestSleepMicroseconds);
    }
  }
}

}  // namespace yardmaster
