#include "src/train/loop.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/metrics/step_record.h"
#include "tests/catch.h"
#include "tests/train/small_run.h"

namespace yardmaster::testing {
namespace {

std::string FailureOf(const TrainOptions& options, ExitCode* code) {
  try {
    Train(options, nullptr);
  } catch (const Error& e) {
    *code = e.code();
    return e.what();
  }
  return "";
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("the same run twice, and a run stopped half-way and resumed, are bit-identical") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  REQUIRE(Train(SmallRun(temp.path(), "straight"), nullptr) == 0);
  REQUIRE(Train(SmallRun(temp.path(), "again"), nullptr) == 0);
  REQUIRE(Train(SmallRun(temp.path(), "ahead", {"runtime.run_ahead=always", "checkpoint.every_steps=5"}),
                nullptr) == 0);
  REQUIRE(Train(SmallRun(temp.path(), "halves", {"train.stop_at_step=6"}), nullptr) == 0);
  REQUIRE(MetricsLines(temp.path(), "halves").size() == 7);  // six steps and a validation
  REQUIRE(Train(SmallRun(temp.path(), "halves"), nullptr) == 0);

  const std::vector<std::string> straight = MetricsLines(temp.path(), "straight");
  REQUIRE(straight.size() == 13);  // twelve steps and the last validation
  for (const char* other : {"again", "ahead", "halves"}) {
    std::vector<std::string> lines = MetricsLines(temp.path(), other);
    std::erase_if(lines, [](const std::string& line) {
      return Contains(line, "\"step\":6,") && Contains(line, "val_loss");
    });
    REQUIRE(lines.size() == straight.size());
    for (size_t i = 0; i < lines.size(); ++i) CHECK(WithoutTimes(lines[i]) == WithoutTimes(straight[i]));
    CHECK((ShardBytes(temp.path(), other, 12) == ShardBytes(temp.path(), "straight", 12)));
  }
}

TEST_CASE("resuming behind the last checkpoint cuts metrics back: each step once") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  REQUIRE(
      Train(SmallRun(temp.path(), "run",
                     {"checkpoint.every_steps=5", "checkpoint.save_at_end=false", "train.stop_at_step=8"}),
            nullptr) == 0);
  REQUIRE(Train(SmallRun(temp.path(), "run"), nullptr) == 0);  // goes on from step 5
  std::vector<int> seen(13, 0);
  for (const std::string& line : MetricsLines(temp.path(), "run")) {
    if (Contains(line, "\"loss\"")) ++seen[static_cast<size_t>(std::stoi(line.substr(line.find(':') + 1)))];
  }
  for (size_t step = 1; step <= 12; ++step) CHECK(seen[step] == 1);
}

TEST_CASE("training learns") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  REQUIRE(Train(SmallRun(temp.path(), "run", {"train.steps=60"}), nullptr) == 0);
  const std::vector<std::string> lines = MetricsLines(temp.path(), "run");
  const auto loss = [](const std::string& line) { return std::stod(line.substr(line.find("loss\":") + 6)); };
  CHECK(loss(lines.front()) > 5.0);
  CHECK(loss(lines.back()) < 3.0);  // the validation
}

TEST_CASE("8-bit recipes train as fp32 does, nearly, and a stopped run goes on to the same bits") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  const auto last_loss = [&](const std::string& run) {
    const std::string line = MetricsLines(temp.path(), run)[11];  // of twelve steps, before the validation
    return std::stod(line.substr(line.find("loss\":") + 6));
  };
  REQUIRE(Train(SmallRun(temp.path(), "fp32"), nullptr) == 0);
  for (const std::string recipe : {"mxfp8", "fp8_block"}) {
    INFO(recipe);
    const std::vector<std::string> on = {"precision.compute=" + recipe, "runtime.device=cpu"};
    REQUIRE(Train(SmallRun(temp.path(), recipe, on), nullptr) == 0);
    std::vector<std::string> half = on;
    half.push_back("train.stop_at_step=6");
    REQUIRE(Train(SmallRun(temp.path(), recipe + " halves", half), nullptr) == 0);
    std::vector<std::string> other_half = on;  // which changes no bit
    other_half.push_back("runtime.saved_inputs=recipe");
    REQUIRE(Train(SmallRun(temp.path(), recipe + " halves", other_half), nullptr) == 0);
    CHECK((ShardBytes(temp.path(), recipe + " halves", 12) == ShardBytes(temp.path(), recipe, 12)));
    CHECK(last_loss(recipe) == Approx(last_loss("fp32")).epsilon(0.02));
    CHECK(last_loss(recipe) != last_loss("fp32"));
  }
}

TEST_CASE("resume refuses other rows for experts, but another mode of dispatch is a layout") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  const std::vector<std::string> recipe = {"precision.compute=mxfp8", "runtime.device=cpu"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), recipe.begin(), recipe.end());
    return SmallRun(temp.path(), "run", more);
  };
  REQUIRE(Train(with({"train.stop_at_step=2"}), nullptr) == 0);
  ExitCode code = ExitCode::kOk;
  const std::string message = FailureOf(with({"ep.payload=recipe"}), &code);
  CHECK(code == ExitCode::kCheckpoint);
  CHECK(Contains(message, "ep.payload: compute in the checkpoint, recipe now"));
  CHECK(Train(with({"train.stop_at_step=3", "ep.mode=deduplicated"}), nullptr) == 0);
}

TEST_CASE("resume refuses changed settings and changed data by name") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  REQUIRE(Train(SmallRun(temp.path(), "run", {"train.stop_at_step=2"}), nullptr) == 0);
  ExitCode code = ExitCode::kOk;
  std::string message = FailureOf(
      SmallRun(temp.path(), "run", {"optimizer.beta2=0.9", "model.routed_scaling_factor=2"}), &code);
  CHECK(code == ExitCode::kCheckpoint);
  CHECK(Contains(message, "optimizer.beta2: 0.95 in the checkpoint, 0.9 now"));
  CHECK(Contains(message, "model.routed_scaling_factor"));
  CHECK(Contains(message, "--accept-changes"));
  // What gives the state other shapes cannot be accepted.
  for (const bool accept : {false, true}) {
    TrainOptions other = SmallRun(temp.path(), "run", {"model.moe_intermediate_size=24"});
    other.accept_changes = accept;
    message = FailureOf(other, &code);
    CHECK(code == ExitCode::kCheckpoint);
    CHECK(Contains(message, "model.moe_intermediate_size: "));
    CHECK(Contains(message, "has shape "));
    CHECK(!Contains(message, "--accept-changes"));
  }

  const std::string bin = temp.path() + "/text.train.bin";
  std::string bytes = ReadFile(bin);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  WriteFileAtomically(bin, bytes);
  message = FailureOf(SmallRun(temp.path(), "run"), &code);
  CHECK(code == ExitCode::kData);
  CHECK(Contains(message, "text.train.bin"));

  TrainOptions accepting = SmallRun(temp.path(), "run", {"train.stop_at_step=3"});
  accepting.accept_changes = true;
  CHECK(Train(accepting, nullptr) == 0);
}

TEST_CASE("a launch may change what does not change the numbers") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  REQUIRE(Train(SmallRun(temp.path(), "run", {"train.stop_at_step=2"}), nullptr) == 0);
  CHECK(Train(SmallRun(temp.path(), "run",
                       {"train.steps=14", "logging.every_steps=5", "parallel.zero=0",
                        "checkpoint.every_steps=3", "train.eval_every_steps=2", "train.eval_sequences=3"}),
              nullptr) == 0);
}

TEST_CASE("non-finite steps are skipped, leave every weight alone, and stop the run when they go on") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  ExitCode code = ExitCode::kOk;
  const std::string message =
      FailureOf(SmallRun(temp.path(), "run",
                         {"schedule.learning_rate=1e30", "optimizer.clip_grad_norm=0", "train.steps=40",
                          "checkpoint.every_steps=1", "checkpoint.keep_latest=0"}),
                &code);
  CHECK(code == ExitCode::kInternal);
  CHECK(Contains(message, "non-finite"));
  const std::vector<std::string> lines = MetricsLines(temp.path(), "run");
  size_t first_bad = 0;
  while (first_bad < lines.size() && Contains(lines[first_bad], "\"verdict\":\"ok\"")) ++first_bad;
  REQUIRE(first_bad < lines.size());
  const auto step = static_cast<int64_t>(first_bad) + 1;  // the first skipped one
  CHECK((ShardBytes(temp.path(), "run", step) == ShardBytes(temp.path(), "run", step - 1)));
  CHECK((ShardBytes(temp.path(), "run", step + 5) == ShardBytes(temp.path(), "run", step - 1)));
}

TEST_CASE(
    "a missing data set names the command that makes one") {
  TempDir temp;
  ExitCode code = ExitCode::kOk;
  const std::string message = FailureOf(SmallRun(temp.path(), "run"), &code);
  CHECK(code == ExitCode::kData);
  CHECK(Contains(message, "yardmaster tokenize"));
}

TEST_CASE("a last save that fails is an error; a run that is started again does not evaluate twice") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  {
    const ScopedFaults full("op=write,match=shard_00000,nth=1,error=ENOSPC");
    CHECK(Train(SmallRun(temp.path(), "full", {"train.steps=2"}), nullptr) ==
          static_cast<int>(ExitCode::kDiskFull));
  }
  CHECK(Train(SmallRun(temp.path(), "run", {"train.steps=2"}), nullptr) == 0);
  CHECK(Train(SmallRun(temp.path(), "run", {"train.steps=2"}), nullptr) == 0);
  CHECK(MetricsLines(temp.path(), "run").size() == 3);
}

TEST_CASE("a damaged byte is passed over, whether bytes or only sizes are verified before") {
  for (const char* verify : {"checkpoint.verify=full", "checkpoint.verify=sizes"}) {
    INFO(verify);
    TempDir temp;
    WriteSmallDataset(temp.path() + "/text");
    REQUIRE(Train(SmallRun(temp.path(), "straight"), nullptr) == 0);
    const std::vector<std::string> settings = {"checkpoint.every_steps=2", "checkpoint.keep_latest=0", verify};
    std::vector<std::string> first = settings;
    first.push_back("train.stop_at_step=6");
    REQUIRE(Train(SmallRun(temp.path(), "run", first), nullptr) == 0);
    const auto damage = [&](int step, const char* file) {
      const std::string path =
          StrCat(temp.path(), "/run/checkpoints/", StrFormat("step_%08d/", step), file);
      std::string bytes = ReadFile(path);
      bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 4);
      WriteFileAtomically(path, bytes);
    };
    damage(6, "shard_00000.safetensors");
    damage(4, "trainer.json");
    // A step that was asked for by its number is not replaced by another.
    std::vector<std::string> asked = settings;
    asked.push_back("checkpoint.resume=6");
    ExitCode code = ExitCode::kOk;
    CHECK(Contains(FailureOf(SmallRun(temp.path(), "run", asked), &code), "step_00000006"));
    REQUIRE(Train(SmallRun(temp.path(), "run", settings), nullptr) == 0);  // from step 2
    CHECK((ShardBytes(temp.path(), "run", 12) == ShardBytes(temp.path(), "straight", 12)));
    CHECK(MetricsLines(temp.path(), "run").size() == 13);
  }
}

TEST_CASE("changed validation data is named; another validation set may be chosen") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  WriteSmallDataset(temp.path() + "/other", 2);
  const std::string other = StrCat("data.validation=", temp.path(), "/other.heldout");
  REQUIRE(Train(SmallRun(temp.path(), "run", {"train.stop_at_step=1"}), nullptr) == 0);
  CHECK(Train(SmallRun(temp.path(), "run", {"train.stop_at_step=2", other}), nullptr) == 0);
  REQUIRE(Train(SmallRun(temp.path(), "run", {"train.stop_at_step=3"}), nullptr) == 0);
  const std::string bin = temp.path() + "/text.heldout.bin";
  std::string bytes = ReadFile(bin);
  bytes[10] = static_cast<char>(bytes[10] ^ 1);
  WriteFileAtomically(bin, bytes);
  ExitCode code = ExitCode::kOk;
  const std::string message = FailureOf(SmallRun(temp.path(), "run"), &code);
  CHECK(code == ExitCode::kData);
  CHECK(Contains(message, "text.heldout.bin"));
}

TEST_CASE("a run that ends without finite weights is an error, though its steps were applied") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  ExitCode code = ExitCode::kOk;
  const std::string message =
      FailureOf(SmallRun(temp.path(), "run", {"optimizer.weight_decay=1e30", "train.steps=3"}), &code);
  CHECK(code == ExitCode::kInternal);
  CHECK(Contains(message, "not finite"));
}

TEST_CASE("a limit on the size of files fails the save, and does not kill the run") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  rlimit limit = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = 400 << 10;  // the shard has 700 KB
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const int code = Train(SmallRun(temp.path(), "run"), nullptr);
  limit.rlim_cur = before;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  CHECK(code == static_cast<int>(ExitCode::kDiskFull));
  CHECK(MetricsLines(temp.path(), "run").size() == 13);
}

TEST_CASE("a global batch that no memory holds is refused at once, with the table") {
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  ExitCode code = ExitCode::kOk;
  const std::string message =
      FailureOf(SmallRun(temp.path(), "run", {"train.global_batch_size=2147483646"}), &code);
  CHECK(code == ExitCode::kConfig);
  CHECK(Contains(message, "step"));
}

TEST_CASE("an evaluation that is not finite is null in metrics.jsonl") {
  CHECK(EvaluationJson(3, 40, std::nan(""), 7) ==
        "{\"step\":3,\"tokens\":40,\"val_loss\":null,\"val_tokens\":7}\n");
}

}  // namespace
}  // namespace yardmaster::testing
