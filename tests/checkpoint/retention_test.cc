#include "src/checkpoint/retention.h"

#include "src/base/files.h"
#include "tests/catch.h"
#include "tests/checkpoint/state_fixture.h"

namespace yardmaster {
namespace {

using namespace testing;
using Names = std::vector<std::string>;

TEST_CASE("the newest are kept, the others go") {
  const TempDir dir;
  for (const int64_t step : {1, 2, 3, 4}) {
    const SaveResult result = SaveState(dir.path(), step, 1, 2, 2);
    REQUIRE(result.ok);
    CHECK(result.removed == (step > 2 ? 1 : 0));
  }
  CHECK(ListDirectory(dir.path()) == Names{"LATEST", "step_00000003", "step_00000004"});
  REQUIRE(SaveState(dir.path(), 5, 1, 1, 0).ok);  // 0 keeps all
  CHECK(ListDirectory(dir.path()).size() == 4);
  REQUIRE(SaveState(dir.path(), 6, 1, 1, 3).ok);
  CHECK(ListDirectory(dir.path()) == Names{"LATEST", "step_00000004", "step_00000005", "step_00000006"});
}

TEST_CASE("a damaged checkpoint does not take the place of a valid one") {
  const TempDir dir;
  for (const int64_t step : {1, 2, 3}) REQUIRE(SaveState(dir.path(), step, 1, 1, 0).ok);
  RemoveTree(dir / "step_00000003/shard_00000.safetensors");
  REQUIRE(SaveState(dir.path(), 4, 1, 1, 2).ok);
  CHECK(ListDirectory(dir.path()) == Names{"LATEST", "step_00000002", "step_00000003", "step_00000004"});
  REQUIRE(SaveState(dir.path(), 5, 1, 1, 2).ok);
  CHECK(ListDirectory(dir.path()) == Names{"LATEST", "step_00000004", "step_00000005"});
}

TEST_CASE("a run that went back keeps what it left, and its own new checkpoints") {
  const TempDir dir;
  for (const int64_t step : {10, 20, 30}) REQUIRE(SaveState(dir.path(), step, 1, 1, 0).ok);
  REQUIRE(SaveState(dir.path(), 11, 2, 1, 2).ok);
  REQUIRE(SaveState(dir.path(), 12, 2, 1, 2).ok);
  CHECK(ListDirectory(dir.path()) ==
        Names{"LATEST", "step_00000011", "step_00000012", "step_00000020", "step_00000030"});
  CHECK(Find(dir.path()).step == 12);
}

TEST_CASE("a removal that fails is a warning, and is made up for later") {
  const TempDir dir;
  for (const int64_t step : {1, 2}) REQUIRE(SaveState(dir.path(), step, 1).ok);
  {
    const ScopedFaults faults("op=remove,nth=1,count=-1,error=EACCES");
    const SaveResult result = SaveState(dir.path(), 3, 1);
    CHECK(result.ok);
    CHECK(result.removed == 0);
    REQUIRE(result.warnings.size() == 1);
    CHECK(Contains(result.warnings[0], ".del-step_00000001"));
  }
  CHECK(ListDirectory(dir.path()) == Names{".del-step_00000001", "LATEST", "step_00000002", "step_00000003"});
  REQUIRE(SaveState(dir.path(), 4, 1).ok);
  CHECK(ListDirectory(dir.path()) == Names{"LATEST", "step_00000003", "step_00000004"});
}

TEST_CASE("leftovers of killed saves are removed by the next save, and only those") {
  const TempDir dir;
  REQUIRE(SaveState(dir.path(), 1, 1).ok);
  MakeDirectories(dir / ".tmp-step_00000002-77");
  WriteFileAtomically(dir / ".tmp-step_00000002-77/shard_00000.safetensors", "torn");
  MakeDirectories(dir / ".tmp-step_00000003-78");
  WriteFileAtomically(dir / "LATEST.tmp-99", "st");
  WriteFileAtomically(dir / "notes.txt", "mine");
  REQUIRE(SaveState(dir.path(), 2, 1).ok);
  CHECK(ListDirectory(dir.path()) == Names{"LATEST", "notes.txt", "step_00000001", "step_00000002"});
}

}  // namespace
}  // namespace yardmaster
