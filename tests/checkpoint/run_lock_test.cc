#include "src/checkpoint/run_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "src/base/error.h"
#include "src/base/files.h"
#include "tests/catch.h"
#include "tests/checkpoint/state_fixture.h"

namespace yardmaster {
namespace {

using namespace testing;

TEST_CASE("a second run in the same directory is refused and told who is there") {
  const TempDir dir;
  const std::string run = dir / "runs/a";
  SingleProcess alone;
  auto lock = std::make_unique<RunLock>(run, alone);
  CHECK(lock->warning().empty());
  const std::string text = ErrorText([&] { RunLock second(run, alone); }, ExitCode::kConfig);
  CHECK(Contains(text, "another run is using this directory"));
  CHECK(Contains(text, "pid " + std::to_string(::getpid()) + " on "));
  CHECK(Contains(text, run));
  RunLock other(dir / "runs/b", alone);
  lock.reset();
  RunLock again(run, alone);  // given back
}

TEST_CASE("the lock of a process that was killed is free") {
  const TempDir dir;
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  SingleProcess alone;
  if (child == 0) {
    RunLock lock(dir.path(), alone);
    if (::write(pipe_ends[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte;
  REQUIRE(::read(pipe_ends[0], &byte, 1) == 1);
  CHECK(Contains(ErrorText([&] { RunLock lock(dir.path(), alone); }, ExitCode::kConfig),
                 std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK_NOTHROW(RunLock(dir.path(), alone));
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

TEST_CASE("rank 0 locks for all ranks, and all are refused together") {
  const TempDir dir;
  SingleProcess alone;
  const RunLock lock(dir.path(), alone);
  ThreadWorld world(3);
  std::vector<std::string> texts(3);
  world.Run([&](Agreement& agreement) {
    texts[static_cast<size_t>(agreement.rank())] =
        ErrorText([&] { RunLock second(dir.path(), agreement); }, ExitCode::kConfig);
  });
  for (const std::string& text : texts) CHECK(Contains(text, "another run"));
}

}  // namespace
}  // namespace yardmaster
