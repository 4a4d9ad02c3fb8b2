// One rank misbehaves (src/train/faults.h, src/base/file_faults.h): what the others do, and what is said.
#include "src/train/faults.h"

#include <filesystem>

#include "tests/catch.h"
#include "tests/train/many_ranks.h"

namespace yardmaster::testing {
namespace {

std::string Fault(const std::string& text) { return "YARDMASTER_FAULT_STEP=" + text; }

TEST_CASE("a NaN on one rank: all ranks skip the step, up to train.max_skipped_steps in a row") {
  ManyRanks runs;
  const std::vector<std::string> settings = {"parallel.ep=2", "train.steps=6", "train.max_skipped_steps=2"};
  const RunResult run = runs.Train(2, "two", settings, Fault("kind=nan,rank=1,step=3,count=2"));
  INFO(run.output);
  CHECK(run.code == 0);
  const std::vector<std::string> steps = runs.Steps("two");
  REQUIRE(steps.size() == 6);
  for (size_t i = 0; i < 6; ++i) {
    const bool bad = i == 2 || i == 3;
    CHECK(Contains(steps[i], "\"verdict\":\"ok\"") != bad);
    CHECK(NumberIn(steps[i], "skipped") == (i < 2 ? 0 : i == 2 ? 1 : 2));
  }
  CHECK(NumberIn(steps[3], "tokens") == NumberIn(steps[1], "tokens"));
  CHECK(NumberIn(steps[4], "tokens") > NumberIn(steps[3], "tokens"));

  const RunResult stopped = runs.Train(2, "three", settings, Fault("kind=nan,rank=1,step=3,count=3"));
  INFO(stopped.output);
  CHECK(stopped.code == 1);
  CHECK(Contains(stopped.output,
                 "non-finite loss or gradient norm for 3 steps in a row; train.max_skipped_steps is 2"));

  // In a step of one micro-batch, of a gradient that nobody shares: whoever writes it sums its squares too.
  const RunResult own = runs.Train(
      1, "own", {"train.steps=4", "train.micro_batch_size=4"}, Fault("kind=nan,rank=0,step=2,tensor=experts"));
  INFO(own.output);
  CHECK(own.code == 0);
  const std::vector<std::string> of_own = runs.Steps("own");
  REQUIRE(of_own.size() == 4);
  for (size_t i = 0; i < 4; ++i) CHECK(Contains(of_own[i], "\"verdict\":\"ok\"") == (i != 1));
}

TEST_CASE("a bit that flips on one rank: the replica check names tensor and rank") {
  ManyRanks runs;
  const RunResult run = runs.Train(
      4, "run",
      {"parallel.ep=2", "parallel.zero=0", "train.micro_batch_size=1", "train.replica_check_every_steps=2"},
      Fault("kind=flip,rank=2,step=4,tensor=kv_b_proj"));
  INFO(run.output);
  CHECK(run.code == static_cast<int>(ExitCode::kCorruption));
  CHECK(Contains(run.output, "differ between ranks after step 4"));
  CHECK(Contains(run.output, "model.layers.0.self_attn.kv_b_proj.weight"));
  CHECK(Contains(run.output, ": rank 2 differs"));
  const RunResult expert = runs.Train(
      4, "expert", {"parallel.ep=2", "train.micro_batch_size=1", "train.replica_check_every_steps=1"},
      Fault("kind=flip,rank=3,step=1,tensor=experts.gate_up_proj"));
  INFO(expert.output);
  CHECK(expert.code == static_cast<int>(ExitCode::kCorruption));
  CHECK(Contains(expert.output, "gate_up_proj"));
  CHECK(Contains(expert.output, "rank 1, rank 3 differ"));  // two copies: either may be wrong
  CHECK(runs.Train(4, "clean",
                   {"parallel.ep=2", "train.micro_batch_size=1", "train.replica_check_every_steps=1"})
            .code == 0);
  // In a recipe: what is multiplied are the 8-bit copies, which no master shows.
  for (const char* zero : {"0", "1"}) {
    const std::vector<std::string> recipe = {
        "parallel.ep=1", StrCat("parallel.zero=", zero), "precision.compute=mxfp8",
        "train.replica_check_every_steps=1", "runtime.device=cpu"};
    const RunResult copy = runs.Train(2, StrCat("copy", zero), recipe,
                                      Fault("kind=flip,rank=1,step=2,tensor=experts.down_proj"));
    INFO(copy.output);
    CHECK(copy.code == static_cast<int>(ExitCode::kCorruption));
    CHECK(Contains(copy.output, "differ between ranks after step 2"));
    CHECK(Contains(copy.output, "experts.down_proj (8-bit copy)"));
    CHECK(runs.Train(2, StrCat("recipe", zero), recipe).code == 0);
  }
}

TEST_CASE("a lost pair, an error on one rank, a bug, a rank that stalls or is killed: everybody ends") {
  ManyRanks runs;
  const auto train = [&](const std::string& name, const std::string& fault, int timeout = 120) {
    return runs.Train(
        2, name,
        {"parallel.ep=2", StrCat("runtime.timeout_seconds=", timeout), "checkpoint.every_steps=2"},
        Fault(fault));
  };
  const RunResult lost = train("count", "kind=count,rank=1,step=3");
  INFO(lost.output);
  CHECK(lost.code == 1);
  CHECK(Contains(lost.output, "step 3 lost 1 (token, expert) pairs"));

  const RunResult thrown = train("throw", "kind=throw,rank=1,step=3");
  INFO(thrown.output);
  CHECK(thrown.code == static_cast<int>(ExitCode::kData));
  CHECK(Contains(thrown.output, "reading the batch failed on rank 1 of 2"));

  const RunResult bug = train("bug", "kind=bug,rank=1,step=3");
  INFO(bug.output);
  CHECK(bug.code == 1);
  CHECK(Contains(bug.output, "a bug that YARDMASTER_FAULT_STEP asked for"));

  const RunResult stalled = train("stall", "kind=stall,rank=1,step=3", /*timeout=*/6);
  INFO(stalled.output);
  CHECK(stalled.code == static_cast<int>(ExitCode::kWatchdog));
  CHECK(Contains(stalled.output, "rank 1"));

  const RunResult killed = train("kill", "kind=kill,rank=1,step=3");
  INFO(killed.output);
  CHECK(killed.code != 0);

  const RunResult straight = train("straight", "");
  for (const char* name : {"count", "throw", "bug", "stall", "kill"}) {
    INFO(name);
    const RunResult resumed = train(name, "");
    CHECK(Contains(resumed.output, "resume       from step 2"));
    CHECK(HashOf(resumed) == HashOf(straight));
    CHECK(runs.Steps(name) == runs.Steps("straight"));
  }
}

TEST_CASE("a fault that nobody can make is refused once, before anything is written") {
  ManyRanks runs;
  for (const auto& [variable, named] :
       {std::pair{"YARDMASTER_FAULT_STEP=kind=sloth", "sloth"}, {"YARDMASTER_FAULT_FILE=sloth=1", "sloth"},
        {"YARDMASTER_FAULT_STEP=kind=nan,rank=2,step=1", "rank 2 is to have the fault, the ranks are 0 to 1"}}) {
    const RunResult result = runs.Train(2, "run", {"parallel.ep=2"}, variable);
    INFO(result.output);
    CHECK(result.code == static_cast<int>(ExitCode::kConfig));
    const size_t first = result.output.find(named);
    REQUIRE(first != std::string::npos);
    CHECK(result.output.find(named, first + 1) == std::string::npos);
    CHECK_FALSE(std::filesystem::exists(runs.Path("run/checkpoints")));
  }
}

TEST_CASE("a full disk on one rank: the save fails for all, training goes on, nothing is lost") {
  ManyRanks runs;
  const std::vector<std::string> settings = {"parallel.ep=2", "checkpoint.every_steps=4"};
  const RunResult straight = runs.Train(2, "straight", settings);
  // The first save works; the second, of step 8, does not.
  const RunResult full = runs.Train(
      2, "full", settings, "YARDMASTER_FAULT_FILE=op=write,match=step_00000008,nth=1,count=-1,error=ENOSPC");
  INFO(full.output);
  CHECK(full.code == 0);
  CHECK(Contains(full.output, "could not save step 8"));
  CHECK(Contains(full.output, "No space left"));
  CHECK_FALSE(std::filesystem::exists(runs.Path("full/checkpoints/step_00000008")));
  CHECK(std::filesystem::exists(runs.Path("full/checkpoints/step_00000004")));
  CHECK(std::filesystem::exists(runs.Path("full/checkpoints/step_00000012")));
  CHECK(HashOf(full) == HashOf(straight));
  // On rank 1's shard alone.
  const RunResult one = runs.Train(
      2, "one", settings, "YARDMASTER_FAULT_FILE=op=write,match=shard_00001,nth=1,count=1,error=ENOSPC");
  INFO(one.output);
  CHECK(one.code == 0);
  CHECK(Contains(one.output, "could not save step 4"));
  CHECK(Contains(one.output, "rank 1"));
}

TEST_CASE("a damaged checkpoint is passed over by name; with none left the run stops") {
  ManyRanks runs;
  const std::vector<std::string> settings = {"parallel.ep=2", "checkpoint.every_steps=4",
                                             "checkpoint.keep_latest=0"};
  const RunResult straight = runs.Train(2, "run", settings);
  REQUIRE(straight.code == 0);
  const auto shard = [&](int64_t step) {
    return runs.Path(StrCat("run/checkpoints/", StrFormat("step_%08lld", static_cast<long long>(step)),
                            "/shard_00001.safetensors"));
  };
  const auto resume = [&] { return runs.Train(2, "run", settings); };
  std::string bytes = ReadFile(shard(12));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);  // flipped
  WriteFileAtomically(shard(12), bytes);
  std::filesystem::resize_file(shard(8), 1000);  // truncated
  RunResult run = resume();
  INFO(run.output);
  CHECK(run.code == 0);
  CHECK(Contains(run.output, "resume       from step 4"));
  CHECK(Contains(run.output, "passed over step_00000012"));
  CHECK(Contains(run.output, "passed over step_00000008"));
  CHECK(Contains(run.output, "shard_00001.safetensors"));
  CHECK(HashOf(run) == HashOf(straight));
  for (int step : {4, 8, 12}) std::filesystem::remove(shard(step));  // missing
  run = resume();
  INFO(run.output);
  CHECK(run.code == static_cast<int>(ExitCode::kCheckpoint));
  CHECK(Contains(run.output, "shard_00001.safetensors"));
}

TEST_CASE("a fault that is not understood is an error") {
  CHECK_THROWS_AS(ParseStepFault("kind=fire"), Error);
  CHECK_THROWS_AS(ParseStepFault("kind=nan,rank=x"), Error);
  CHECK_THROWS_AS(ParseStepFault("kind=nan,when=3"), Error);
  for (const char* never : {"kind=nan", "kind=nan,step=0", "kind=nan,step=2,count=0", "kind=nan,rank=-1,step=2"})
    CHECK_THROWS_AS(ParseStepFault(never), Error);
  const StepFault fault = ParseStepFault("kind=flip,rank=2,step=4,count=5,tensor=kv_b");
  CHECK((fault.kind == "flip" && fault.rank == 2 && fault.step == 4 && fault.count == 5 &&
         fault.tensor == "kv_b"));
}

}  // namespace
}  // namespace yardmaster::testing
