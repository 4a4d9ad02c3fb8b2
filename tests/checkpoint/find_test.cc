#include "src/checkpoint/find.h"

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/checkpoint/layout.h"
#include "src/checkpoint/manifest.h"
#include "tests/catch.h"
#include "tests/checkpoint/state_fixture.h"

namespace yardmaster {
namespace {

using namespace testing;

void Overwrite(const std::string& path, const std::string& bytes) {
  FileWriter writer(path);
  writer.Write(bytes);
  writer.Close(false);
}

// Steps 10, 20 and 30 by one rank, LATEST on 30.
void SaveThree(const std::string& dir) {
  for (const int64_t step : {10, 20, 30}) REQUIRE(SaveState(dir, step, static_cast<uint64_t>(step), 1, 0).ok);
}

std::string SkippedReason(const FoundCheckpoint& found, const std::string& name) {
  for (const SkippedCheckpoint& s : found.skipped)
    if (s.name == name) return s.reason;
  return "";
}

TEST_CASE("checkpoint.resume is understood or refused") {
  CHECK(ParseResume("auto").mode == ResumeMode::kAuto);
  CHECK(ParseResume("never").mode == ResumeMode::kNever);
  CHECK(ParseResume("120").mode == ResumeMode::kStep);
  CHECK(ParseResume("120").step == 120);
  for (const char* text : {"", "-1", "1.5", "Auto", "99999999999999999999"})
    CHECK(Contains(ErrorText([&] { ParseResume(text); }, ExitCode::kConfig), "checkpoint.resume"));
}

TEST_CASE("names of step directories") {
  CHECK(StepDirectoryName(100) == "step_00000100");
  CHECK(StepOfDirectoryName("step_00000100") == 100);
  CHECK(StepOfDirectoryName("step_123456789") == 123456789);
  for (const char* name :
       {"step_100", "step_0000010x", "step_", "xstep_00000100", ".tmp-step_00000100", "step_000000100"})
    CHECK(StepOfDirectoryName(name) == -1);
}

TEST_CASE("nothing there is a fresh start, and never means never") {
  const TempDir dir;
  CHECK(Find(dir / "none").fresh());
  CHECK(Contains(Find(dir.path()).reason, "fresh start"));
  MakeDirectories(dir / ".tmp-step_00000010-1");
  MakeDirectories(dir / ".del-step_00000005");
  CHECK(Find(dir.path()).fresh());
  SaveThree(dir.path());
  CHECK(Find(dir.path(), "never").fresh());
}

TEST_CASE("the one that LATEST names is taken, whatever else lies there") {
  const TempDir dir;
  SaveThree(dir.path());
  MakeDirectories(dir / ".tmp-step_00000040-1");  // two saves that were killed
  MakeDirectories(dir / ".tmp-step_00000050-2");
  const FoundCheckpoint found = Find(dir.path());
  CHECK(found.step == 30);
  CHECK(found.path == dir / "step_00000030");
  CHECK(found.reason == "LATEST names it");
  CHECK(found.skipped.empty());
}

TEST_CASE("an older LATEST is followed, and the newer ones are told") {
  const TempDir dir;
  SaveThree(dir.path());
  Overwrite(dir / "LATEST", "step_00000020");
  const FoundCheckpoint found = Find(dir.path());
  CHECK(found.step == 20);
  CHECK(Contains(SkippedReason(found, "step_00000030"), "checkpoint.resume=30"));
  CHECK(found.skipped.size() == 1);
}

TEST_CASE("without a good LATEST the newest valid one is taken") {
  const TempDir dir;
  SaveThree(dir.path());
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {"", "is empty"},
           {"\n", "is empty"},
           {"step_00000090\n", "names step_00000090, which is not there"},
           {"../step_00000010", "does not name a checkpoint"},
           {std::string("\0\xff", 2), "does not name a checkpoint"}}) {
    Overwrite(dir / "LATEST", text);
    const FoundCheckpoint found = Find(dir.path());
    CHECK(found.step == 30);
    CHECK(found.reason == "it is the newest valid one");
    CHECK(SkippedReason(found, "LATEST") == reason);
  }
  RemoveTree(dir / "LATEST");
  CHECK(SkippedReason(Find(dir.path()), "LATEST") == "is missing");
}

TEST_CASE("damaged checkpoints are passed over with the reason") {
  const TempDir dir;
  SaveThree(dir.path());
  const std::string newest = dir / "step_00000030", shard = newest + "/shard_00000.safetensors";
  const std::string good = ReadFile(shard), manifest = ReadFile(newest + "/manifest.json");
  const auto skipped = [&](bool full = true) {
    const FoundCheckpoint found = Find(dir.path(), "auto", full);
    CHECK(found.step == 20);
    CHECK(LoadedWrong(found.path, 20) == 0);
    return SkippedReason(found, "step_00000030");
  };
  Overwrite(shard, good.substr(0, good.size() - 1));
  CHECK(Contains(skipped(), "shard_00000.safetensors: has"));
  CHECK(Contains(skipped(false), "the manifest says"));
  RemoveTree(shard);
  CHECK(Contains(skipped(false), "shard_00000.safetensors: is missing"));
  std::string flipped = good;
  flipped.back() = static_cast<char>(flipped.back() ^ 4);
  Overwrite(shard, flipped);
  CHECK(Contains(skipped(), "has crc32c"));
  CHECK(Find(dir.path(), "auto", /*full=*/false).step == 30);  // sizes alone do not see it; the load does
  CHECK(Contains(ErrorText([&] { LoadedWrong(newest, 30); }), "crc32c"));
  Overwrite(shard, good);
  CHECK(Find(dir.path()).step == 30);
  RemoveTree(newest + "/manifest.json");
  CHECK(Contains(skipped(), "the save did not finish"));
  Overwrite(newest + "/manifest.json", "");
  CHECK(Contains(skipped(), "manifest.json"));
  Overwrite(newest + "/manifest.json", ReadFile(dir / "step_00000020/manifest.json"));
  CHECK(Contains(skipped(), "is of step 20"));
  Overwrite(newest + "/manifest.json", manifest);
  CHECK(Find(dir.path()).step == 30);
}

TEST_CASE("any changed byte of a manifest is seen") {
  const TempDir dir;
  REQUIRE(SaveState(dir.path(), 10, 1).ok);
  const std::string path = dir / "step_00000010/manifest.json";
  const std::string good = ReadFile(path);
  CHECK(ManifestToText(ManifestFromText(good, path)) == good);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 7));
    REQUIRE(Contains(ErrorText([&] { ManifestFromText(bad, path); }), path));
    REQUIRE(Contains(ErrorText([&] { ManifestFromText(good.substr(0, i), path); }), path));
  }
}

TEST_CASE("checkpoints of which none is valid are an error, never a silent fresh start") {
  const TempDir dir;
  SaveThree(dir.path());
  for (const char* name : {"step_00000010", "step_00000020", "step_00000030"})
    RemoveTree(JoinPath(dir / name, "shard_00000.safetensors"));
  const std::string text = ErrorText([&] { Find(dir.path()); });
  for (const char* part : {"step_00000010", "step_00000020", "step_00000030", "none is valid", "never"})
    CHECK(Contains(text, part));
  for (const char* name : {"step_00000010", "step_00000020", "step_00000030"}) RemoveTree(dir / name);
  CHECK(Contains(ErrorText([&] { Find(dir.path()); }), "LATEST names step_00000030, which is not there"));
}

TEST_CASE("a step asked for is that one or an error") {
  const TempDir dir;
  SaveThree(dir.path());
  CHECK(Find(dir.path(), "10").step == 10);
  CHECK(Contains(Find(dir.path(), "10").reason, "asks for step 10"));
  const std::string text = ErrorText([&] { Find(dir.path(), "15"); });
  CHECK(Contains(text, "no checkpoint of step 15"));
  CHECK(Contains(text, "30, 20, 10"));
  RemoveTree(dir / "step_00000010/trainer.json");
  CHECK(Contains(ErrorText([&] { Find(dir.path(), "10"); }), "trainer.json: is missing"));
}

TEST_CASE("all ranks find the same, and all throw together") {
  const TempDir dir;
  for (const int64_t step : {10, 20}) REQUIRE(SaveState(dir.path(), step, 1, 4).ok);
  // The last shard: it is not rank 0 that checks it.
  const std::string shard = dir / "step_00000020/shard_00003.safetensors";
  std::string bytes = ReadFile(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  Overwrite(shard, bytes);
  ThreadWorld world(4);
  std::vector<FoundCheckpoint> found(4);
  std::vector<std::string> errors(4);
  world.Run([&](Agreement& agreement) {
    const size_t r = static_cast<size_t>(agreement.rank());
    found[r] = FindCheckpoint({dir.path(), ParseResume("auto"), true}, agreement);
    errors[r] = ErrorText([&] { FindCheckpoint({dir.path(), ParseResume("20"), true}, agreement); });
  });
  for (size_t r = 0; r < 4; ++r) {
    CHECK(found[r].step == 10);
    CHECK(Contains(SkippedReason(found[r], "step_00000020"), "shard_00003"));
    CHECK(Contains(errors[r], "shard_00003"));
  }
}

}  // namespace
}  // namespace yardmaster
