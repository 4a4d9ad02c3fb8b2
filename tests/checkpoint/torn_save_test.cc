// A save that fails or is killed at any point leaves a checkpoint to resume from, and the next save works.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/file_faults.h"
#include "src/base/files.h"
#include "src/base/strings.h"
#include "tests/catch.h"
#include "tests/checkpoint/state_fixture.h"

namespace yardmaster {
namespace {

using namespace testing;

// Salt 1 is the state before, salt 2 the one that the torn save tries to write.
void CheckResumable(const std::string& dir, bool must_be_new, bool must_be_old, int ranks) {
  const FoundCheckpoint found = Find(dir);
  REQUIRE_FALSE(found.fresh());
  const bool is_old = LoadedWrong(found.path, 1, ranks) == 0, is_new = LoadedWrong(found.path, 2, ranks) == 0;
  CHECK(is_old != is_new);
  if (must_be_new) CHECK(is_new);
  if (must_be_old) CHECK(is_old);
}

bool HasLeftovers(const std::string& dir) {
  for (const std::string& name : ListDirectory(dir))
    if (name[0] == '.' || Contains(name, ".tmp-")) return true;
  return false;
}

// `step`: 20 for a new checkpoint, 10 for one that replaces the old. Fails the k-th file operation, for each
// k until the save does not meet the fault.
void FailEachOperation(int ranks, int64_t step, const std::string& fault) {
  int k = 1;
  for (;; ++k) {
    INFO(ranks << " ranks, step " << step << ", " << fault << ", operation " << k);
    REQUIRE(k < 200);
    const TempDir dir;
    REQUIRE(SaveState(dir.path(), 10, 1, ranks).ok);
    SaveResult result;
    int64_t hits;
    {
      const ScopedFaults faults(StrCat(fault, ",nth=", k));
      result = SaveState(dir.path(), step, 2, ranks);
      hits = FileFaultHits();
    }
    if (!result.ok) CHECK_FALSE(result.reason.empty());
    if (!result.ok) CHECK(result.code == (Contains(fault, "EIO") ? ExitCode::kData : ExitCode::kDiskFull));
    // A failure after the rename says that the new one is complete: either may then be resumed from.
    const bool published = Contains(result.reason, "is complete, but");
    CheckResumable(dir.path(), result.ok, !result.ok && !published, ranks);
    const SaveResult next = SaveState(dir.path(), 30, 3, ranks);
    REQUIRE(next.ok);
    CHECK_FALSE(HasLeftovers(dir.path()));
    CHECK(Find(dir.path()).path == next.path);
    CHECK(LoadedWrong(next.path, 3) == 0);
    if (hits == 0) break;
  }
  CHECK(k > 15);
}

TEST_CASE("each single operation of a save fails") {
  FailEachOperation(1, 20, "error=EIO");
  FailEachOperation(1, 10, "error=EIO");
  FailEachOperation(2, 20, "error=ENOSPC");
}

TEST_CASE("every operation from some point on fails, also those that clean up") {
  FailEachOperation(1, 20, "error=ENOSPC,count=-1");
  FailEachOperation(2, 10, "error=EDQUOT,count=-1");
}

TEST_CASE("the disk is full after any number of bytes, and the run goes on") {
  int failures = 0;
  for (int64_t bytes = 0;; bytes += 97) {
    INFO(bytes << " bytes");
    REQUIRE(bytes < 20000);
    const TempDir dir;
    REQUIRE(SaveState(dir.path(), 10, 1, 2).ok);
    SaveResult result;
    {
      const ScopedFaults faults(StrCat("allow_bytes=", bytes));
      result = SaveState(dir.path(), 20, 2, 2);
    }
    if (!result.ok) {
      ++failures;
      CHECK(result.code == ExitCode::kDiskFull);
    }
    CheckResumable(dir.path(), result.ok, false, 2);
    if (result.ok) break;
  }
  CHECK(failures > 10);
}

TEST_CASE("too little free space is known before anything is written") {
  const TempDir dir;
  REQUIRE(SaveState(dir.path(), 10, 1).ok);
  const ScopedFaults faults("free_bytes=1000000");
  const SaveResult result = SaveState(dir.path(), 20, 2);
  CHECK_FALSE(result.ok);
  CHECK(result.code == ExitCode::kDiskFull);
  CHECK(Contains(result.reason, "976.56 KiB are free"));
  CHECK(ListDirectory(dir.path()) == std::vector<std::string>{"LATEST", "step_00000010"});
}

TEST_CASE("one rank that fails fails the save for all, and is named") {
  const TempDir dir;
  REQUIRE(SaveState(dir.path(), 10, 1, 4).ok);
  {
    const ScopedFaults faults("op=fsync,match=shard_00002,nth=1,error=EDQUOT");
    const SaveResult result = SaveState(dir.path(), 20, 2, 4);
    CHECK_FALSE(result.ok);
    CHECK(result.code == ExitCode::kDiskFull);
    CHECK(Contains(result.reason, "rank 2"));
    CHECK(Contains(result.reason, "quota"));
  }
  CHECK_FALSE(HasLeftovers(dir.path()));
  CHECK(Find(dir.path()).step == 10);
}

// The process is killed just before its k-th file operation, for each k.
void KillAtEachOperation(int64_t step) {
  for (int k = 1;; ++k) {
    INFO("step " << step << ", operation " << k);
    REQUIRE(k < 200);
    const TempDir dir;
    REQUIRE(SaveState(dir.path(), 5, 1).ok);
    REQUIRE(SaveState(dir.path(), 10, 1).ok);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      RankState state(0, 1);
      state.Fill(2);
      HostDevice device;
      SingleProcess alone;
      SetFileFaults(ParseFileFaults(StrCat("kill,nth=", k)));
      const SaveResult result = SaveCheckpoint({dir.path()}, ContentsOf(state, step), device, alone);
      ::_exit(result.ok ? 0 : 9);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    const bool finished = WIFEXITED(status);
    if (finished) REQUIRE(WEXITSTATUS(status) == 0);
    CheckResumable(dir.path(), finished, false, 1);
    REQUIRE(SaveState(dir.path(), 30, 3).ok);
    CHECK_FALSE(HasLeftovers(dir.path()));
    if (finished) {
      CHECK(k > 15);
      return;
    }
  }
}

TEST_CASE("a kill at each operation of a new save") { KillAtEachOperation(20); }

TEST_CASE("a kill at each operation of a save that replaces the same step") { KillAtEachOperation(10); }

// Hidden: runs only by name, in the process that the next test starts.
TEST_CASE("save once for the environment test", "[.]") {
  const TempDir dir;
  CHECK(SaveState(dir.path(), 10, 1).ok);
}

// The wait status of a new process of this program that saves once.
int SaveInProcess(const char* fault) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // An exec, because the variable is read at the first file operation of a process, which this one has had.
    ::unsetenv("XML_OUTPUT_FILE");
    ::setenv("YARDMASTER_FAULT_FILE", fault, 1);
    ::close(STDOUT_FILENO);
    ::execl("/proc/self/exe", "torn_save_test", "save once for the environment test",
            static_cast<char*>(nullptr));
    ::_exit(99);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("faults reach a whole process through the environment") {
  int status = SaveInProcess("");
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  status = SaveInProcess("op=rename,match=LATEST,nth=1,kill");
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  status =
      SaveInProcess("op=fsync,nth=1,error=EIO");  // the save says that it failed, and the test case with it
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 1));
  status = SaveInProcess("op=writ");  // what is not understood is not ignored
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 1));
}

}  // namespace
}  // namespace yardmaster
