#include "src/parallel/schedule.h"

#include <algorithm>

#include "src/base/strings.h"

namespace yardmaster {

std::vector<Task> OneStageSchedule(int64_t micro_batches, int64_t in_turn) {
  std::vector<Task> tasks;
  for (int64_t m = 0; m < micro_batches; m += in_turn) {
    const int64_t now = std::min(in_turn, micro_batches - m);
    tasks.push_back({Pass::kForward, 0, m, now});
    tasks.push_back({Pass::kBackward, 0, m, now});
  }
  return tasks;
}

int64_t MaxInFlight(const std::vector<Task>& tasks, int64_t stage) {
  int64_t now = 0, most = 0;
  for (const Task& t : tasks) {
    if (t.stage != stage) continue;
    now += t.pass == Pass::kForward ? t.in_turn : -t.in_turn;
    most = std::max(most, now);
  }
  return most;
}

std::string ScheduleProblem(const std::vector<Task>& tasks, int64_t stages, int64_t micro_batches) {
  // done[m]: passes of micro-batch m so far. Its n-th pass must be forward on stage n, or backward on stage 2
  // stages - 1 - n.
  std::vector<int64_t> done(static_cast<size_t>(std::max<int64_t>(micro_batches, 0)), 0);
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Task& t = tasks[i];
    if (t.in_turn < 1) return StrCat("task ", i, ": of no micro-batch");
    for (int64_t m = t.micro_batch; m < t.micro_batch + t.in_turn; ++m) {
      if (m < 0 || m >= micro_batches) return StrCat("task ", i, ": no micro-batch ", m);
      int64_t& n = done[static_cast<size_t>(m)];
      const bool forward = n < stages;
      const Pass pass = forward ? Pass::kForward : Pass::kBackward;
      if (n == 2 * stages || t.pass != pass || t.stage != (forward ? n : 2 * stages - 1 - n)) {
        return StrCat("task ", i, ": ", t.pass == Pass::kForward ? "forward" : "backward", " of micro-batch ", m,
                      " on stage ", t.stage, " is out of order");
      }
      ++n;
    }
  }
  for (size_t m = 0; m < done.size(); ++m) {
    if (done[m] != 2 * stages)
      return StrCat("micro-batch ", m, " has ", done[m], " of ", 2 * stages, " passes");
  }
  return "";
}

}  // namespace yardmaster
