// The binary itself: what it says to a mistaken command line, and how it ends.
#include <sys/stat.h>

#include <regex>

#include "tests/catch.h"
#include "tests/train/many_ranks.h"

namespace yardmaster::testing {
namespace {

constexpr int kConfigCode = static_cast<int>(ExitCode::kConfig);

// A command that waits for something is ended, with another exit code.
RunResult Yardmaster(const std::string& arguments) {
  return Shell("timeout 20 tools/yardmaster_unstamped " + arguments);
}

TEST_CASE("an unknown command names the nearest one and all there are") {
  const RunResult foo = Yardmaster("foo");
  INFO(foo.output);
  CHECK(foo.code == kConfigCode);
  CHECK(Contains(foo.output, "there is no command 'foo'"));
  CHECK_FALSE(Contains(foo.output, "did you mean"));
  CHECK(Contains(foo.output, "the commands are train, validate, tokenize,"));
  const RunResult near = Yardmaster("trian configs/tiny.yaml --set a.b=1");
  CHECK(near.code == kConfigCode);
  CHECK(Contains(near.output, "there is no command 'trian'; did you mean train?"));
  CHECK(Yardmaster("--version").code == 0);
  CHECK(Yardmaster("--help").code == 0);
  CHECK(Yardmaster("").code == kConfigCode);
}

TEST_CASE("an unknown benchmark names the nearest one") {
  const RunResult result = Yardmaster("bench grouped-gem");
  INFO(result.output);
  CHECK(result.code == kConfigCode);
  CHECK(Contains(result.output, "there is no benchmark 'grouped-gem'; did you mean grouped-gemm?"));
  CHECK(Yardmaster("bench --help").code == 0);
}

TEST_CASE("a command that works alone says so to several processes, once") {
  for (const std::string arguments : {"evaluate runs/x", "sample runs/x --prompt a", "tokenize --out x docs"}) {
    const RunResult result = Shell("tools/bazel/mpi_test.sh 2 tools/yardmaster_unstamped " + arguments);
    INFO(arguments << ": " << result.output);
    CHECK(result.code == kConfigCode);
    const std::string told = "runs in one process, found 2";
    const size_t first = result.output.find(told);
    REQUIRE(first != std::string::npos);
    CHECK(result.output.find(told, first + 1) == std::string::npos);
  }
}

TEST_CASE("what a command does not take is an error like any other") {
  for (const std::string arguments : {"train", "train a.yaml --foo", "bench step --steps x a.yaml", "bench"}) {
    const RunResult result = Yardmaster(arguments);
    INFO(arguments << ": " << result.output);
    CHECK(result.code == kConfigCode);
    CHECK(Contains(result.output, "error [rank 0]: "));
    CHECK(Contains(result.output, "--help` lists what it takes"));
  }
}

TEST_CASE("parity says that gradients have no reference") {
  const TempDir dir;
  for (const char* file : {"config.json", "model.safetensors", "expected.safetensors"})
    WriteFileAtomically(dir / file, ReadFile(std::string("tests/golden/mixtral/") + file));
  const RunResult result = Yardmaster("parity --steps 0 --hf " + dir.path() + " --out " + (dir / "out.safetensors"));
  INFO(result.output);
  CHECK(result.code == 0);
  CHECK(Contains(result.output, "grads.safetensors: no such file: gradients are written, but compared with nothing"));
}

TEST_CASE("a config that is no regular file is refused, not waited for") {
  const TempDir dir;
  const std::string pipe = dir / "pipe.yaml";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {pipe, dir.path(), std::string("/dev/zero")}) {
    for (const char* command : {"train ", "validate "}) {
      const RunResult result = Yardmaster(command + path);
      INFO(command << path << ": " << result.output);
      CHECK(result.code == kConfigCode);
      CHECK(Contains(result.output, path + ": is not a regular file"));
    }
  }
}

TEST_CASE("a setting of no section gets no guess") {
  const TempDir dir;
  WriteFileAtomically(dir / "small.yaml", kSmallConfig);
  const RunResult result = Yardmaster("validate " + (dir / "small.yaml") + " --set foo.bar=1");
  INFO(result.output);
  CHECK(result.code == kConfigCode);
  CHECK(Contains(result.output, "--set foo.bar=1: foo: unknown section; there are run, runtime,"));
}

TEST_CASE("validate --ranks plans the memory that a rank of such a run plans and takes") {
  ManyRanks runs;
  const std::vector<std::vector<std::string>> cases = {
      {"parallel.ep=2"},
      {"parallel.ep=2", "parallel.zero=0", "precision.compute=mxfp8", "ep.payload=recipe"},
      {"parallel.ep=1", "precision.compute=fp8_block"},
      {"parallel.ep=2", "ep.mode=deduplicated", "ep.ragged_buffer_factor=1.5"}};
  for (const std::vector<std::string>& overrides : cases) {
    std::vector<std::string> all = {"runtime.device=cpu", "train.steps=1", "logging.every_steps=1",
                                    "logging.timings_every_steps=0"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    std::string command = "validate " + runs.Path("small.yaml") + " --ranks 2";
    for (const std::string& o : all) command += " --set " + o;
    const RunResult planned = Yardmaster(command), run = runs.Train(2, StrJoin(overrides, "_"), all);
    INFO(planned.output << run.output);
    REQUIRE(planned.code == 0);
    REQUIRE(run.code == 0);
    for (const char* arena : {"weights", "gradients", "optimizer", "saved", "workspace", "step", "exchange", "in all"}) {
      INFO(arena);
      const std::regex line(StrCat("\n  ", arena, " +([0-9.]+ [A-Za-z]+)"));
      std::smatch of_plan, of_run;
      REQUIRE(std::regex_search(planned.output, of_plan, line));
      REQUIRE(std::regex_search(run.output, of_run, line));
      CHECK(of_plan[1] == of_run[1]);
    }
  }
  const RunResult wrong = Yardmaster("validate " + runs.Path("small.yaml") + " --ranks 3 --set parallel.ep=2");
  INFO(wrong.output);
  CHECK(wrong.code == kConfigCode);
  CHECK(Contains(wrong.output, "parallel.ep: must divide the data-parallel ranks (3 ranks"));
  CHECK(Yardmaster("validate " + runs.Path("small.yaml") + " --ranks 0").code == kConfigCode);
}

TEST_CASE("tokenize keeps a data set that is there, unless it is told to replace it") {
  const TempDir dir;
  WriteSmallDataset(dir / "text");
  const std::string before = ReadFile(dir / "text.train.bin");
  WriteFileAtomically(dir / "text.texts/another", "another text");
  const std::string command = "tokenize --out " + (dir / "text") + " " + (dir / "text.texts");
  const RunResult refused = Yardmaster(command);
  INFO(refused.output);
  CHECK(refused.code == kConfigCode);
  CHECK(Contains(refused.output, "a data set is here already"));
  CHECK(ReadFile(dir / "text.train.bin") == before);
  CHECK(Yardmaster(command + " --force").code == 0);
  CHECK(ReadFile(dir / "text.train.bin") != before);
}

TEST_CASE("a damaged line of metrics.jsonl is told when the run goes on") {
  ManyRanks runs;
  REQUIRE(runs.Train(1, "run", {"train.steps=4", "train.stop_at_step=3"}).code == 0);
  const std::string path = runs.Path("run/metrics.jsonl");
  std::string text = ReadFile(path);
  const size_t second = text.find('\n') + 1;
  text.erase(second, 5);  // the begin of step 2
  WriteFileAtomically(path, text);
  const RunResult result = runs.Train(1, "run", {"train.steps=4"});
  INFO(result.output);
  CHECK(result.code == 0);
  CHECK(Contains(result.output, path + ": 1 line is no record and was dropped, first line 2"));
  CHECK(runs.Steps("run").size() == 3);  // 1, 3 and 4
}

}  // namespace
}  // namespace yardmaster::testing
