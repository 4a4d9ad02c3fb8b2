#include "src/parallel/schedule.h"

#include <algorithm>

#include "tests/catch.h"

namespace yardmaster {
namespace {

TEST_CASE("one stage: each micro-batch forward and at once backward") {
  for (const int64_t n : {0, 1, 5}) {
    const std::vector<Task> tasks = OneStageSchedule(n);
    CHECK(ScheduleProblem(tasks, 1, n) == "");
    CHECK(MaxInFlight(tasks, 0) == (n > 0 ? 1 : 0));
    REQUIRE(tasks.size() == static_cast<size_t>(2 * n));
    for (int64_t m = 0; m < n; ++m) {
      CHECK(tasks[static_cast<size_t>(2 * m)] == Task{Pass::kForward, 0, m});
      CHECK(tasks[static_cast<size_t>(2 * m + 1)] == Task{Pass::kBackward, 0, m});
    }
  }
}

TEST_CASE("one stage, two in turn: the last of an odd number is alone") {
  for (const int64_t n : {0, 1, 2, 5}) {
    const std::vector<Task> tasks = OneStageSchedule(n, 2);
    CHECK(ScheduleProblem(tasks, 1, n) == "");
    CHECK(MaxInFlight(tasks, 0) == std::min<int64_t>(n, 2));
    REQUIRE(tasks.size() == static_cast<size_t>(2 * ((n + 1) / 2)));
    for (const Task& task : tasks) CHECK(task.in_turn == (task.micro_batch + 1 < n ? 2 : 1));
  }
  CHECK(ScheduleProblem({{Pass::kForward, 0, 0, 2}, {Pass::kBackward, 0, 0, 1}}, 1, 2) != "");
  CHECK(ScheduleProblem({{Pass::kForward, 0, 0, 0}}, 1, 1) != "");
}

TEST_CASE("illegal schedules are recognised") {
  const Task f0{Pass::kForward, 0, 0}, b0{Pass::kBackward, 0, 0}, f1{Pass::kForward, 0, 1},
      b1{Pass::kBackward, 0, 1};
  CHECK(ScheduleProblem({f0, f1, b1, b0}, 1, 2) == "");
  CHECK(MaxInFlight({f0, f1, b1, b0}, 0) == 2);
  CHECK(ScheduleProblem({b0, f0}, 1, 1) != "");
  CHECK(ScheduleProblem({f0, f0, b0}, 1, 1) != "");
  CHECK(ScheduleProblem({f0, b0, b0}, 1, 1) != "");
  CHECK(ScheduleProblem({f0}, 1, 1) != "");
  CHECK(ScheduleProblem({f0, b0}, 1, 2) != "");
  CHECK(ScheduleProblem({f1, b1}, 1, 1) != "");
}

TEST_CASE("two stages go up and come down") {
  const auto f = [](int64_t s, int64_t m) { return Task{Pass::kForward, s, m}; };
  const auto b = [](int64_t s, int64_t m) { return Task{Pass::kBackward, s, m}; };
  const std::vector<Task> good = {f(0, 0), f(0, 1), f(1, 0), b(1, 0), f(1, 1), b(0, 0), b(1, 1), b(0, 1)};
  CHECK(ScheduleProblem(good, 2, 2) == "");
  CHECK(MaxInFlight(good, 0) == 2);
  CHECK(MaxInFlight(good, 1) == 1);
  CHECK(ScheduleProblem({f(0, 0), f(1, 0), b(0, 0), b(1, 0)}, 2, 1) != "");
}

}  // namespace
}  // namespace yardmaster
