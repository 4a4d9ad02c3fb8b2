// Dispatch windows that are too small: the run is the one with ample windows, and says what it cost.
#include "tests/catch.h"
#include "tests/train/many_ranks.h"

namespace yardmaster::testing {
namespace {

std::vector<std::string> Settings(int ep, const std::string& factor, std::vector<std::string> more = {}) {
  more.insert(more.end(),
              {StrCat("parallel.ep=", ep), "ep.ragged_buffer_factor=" + factor, "train.micro_batch_size=1",
               "train.steps=14", "train.global_batch_size=8", "checkpoint.every_steps=5",
               "checkpoint.keep_latest=0", "train.eval_every_steps=4", "train.eval_sequences=16"});
  return more;
}

int64_t Replays(const RunResult& run) { return std::stoll("0" + After(run.output, "  replays        ")); }

std::vector<std::string> Validations(const ManyRanks& runs, const std::string& name) {
  std::vector<std::string> lines = MetricsLines(runs.Path(""), name);
  std::erase_if(lines, [](const std::string& line) { return !Contains(line, "val_loss"); });
  return lines;
}

TEST_CASE("windows too small: bit-identical to ample ones, however seldom the host looks") {
  ManyRanks runs;
  for (int ep : {2, 4}) {
    const std::string ample = StrCat("ample", ep);
    const RunResult reference = runs.Train(ep, ample, Settings(ep, "-1"));
    INFO(reference.output);
    REQUIRE(reference.code == 0);
    for (const auto& [every, ahead] :
         {std::pair(1, "never"), {1, "always"}, {3, "never"}, {3, "always"}, {100, "never"}}) {
      const std::string name = StrCat("small", ep, "_", every, "_", ahead);
      INFO(name);
      // Each expert fits into a window of its own, what a rank gets often does not: 32 rows for 2 ranks, 64
      // for 4.
      const RunResult run = runs.Train(
          ep, name,
          Settings(ep, ep == 2 ? "1" : "2",
                   {StrCat("ep.overflow_check_every_n_steps=", every), StrCat("runtime.run_ahead=", ahead)}));
      INFO(run.output);
      REQUIRE(run.code == 0);
      CHECK(Replays(run) > 0);
      CHECK(Contains(run.output, "would have avoided them"));
      CHECK(runs.Steps(name) == runs.Steps(ample));
      CHECK(Validations(runs, name) == Validations(runs, ample));
      CHECK((runs.Tensors(name, 10) == runs.Tensors(ample, 10)));
      CHECK((runs.Tensors(name, 14) == runs.Tensors(ample, 14)));
      CHECK(HashOf(run) == HashOf(reference));
      CHECK(NumberIn(MetricsLines(runs.Path(""), name).back(), "step") == 14);
    }
  }
}

TEST_CASE("windows too small for rows in 8 bits: bit-identical to ample ones, and near one rank's") {
  ManyRanks runs;
  std::vector<std::string> wire = {"precision.compute=fp8_block", "ep.payload=recipe", "runtime.device=cpu",
                                         "train.steps=5"};
  const auto train = [&](const std::string& name, int ranks, const std::string& factor) {
    std::vector<std::string> settings = Settings(ranks, factor);
    settings.insert(settings.end(), wire.begin(), wire.end());
    const RunResult run = runs.Train(ranks, name, settings);
    INFO(run.output);
    REQUIRE(run.code == 0);
    return run;
  };
  train("ample", 2, "-1");
  CHECK(Replays(train("small", 2, "1")) > 0);
  CHECK(runs.Steps("small") == runs.Steps("ample"));
  CHECK((runs.Tensors("small", 5) == runs.Tensors("ample", 5)));
  train("alone", 1, "-1");
  wire.push_back("ep.mode=deduplicated");
  train("deduplicated", 2, "-1");
  for (size_t i = 0; i < 5; ++i) {
    const double alone = NumberIn(runs.Steps("alone")[i], "loss");
    CHECK(NumberIn(runs.Steps("ample")[i], "loss") == Approx(alone).epsilon(5e-3));
    CHECK(NumberIn(runs.Steps("deduplicated")[i], "loss") == Approx(alone).epsilon(5e-3));
  }
}

TEST_CASE("the factor that a run names avoids its replays") {
  ManyRanks runs;
  const RunResult small = runs.Train(2, "small", Settings(2, "1"));
  const std::string factor = After(After(small.output, "  replays        "), "ep.ragged_buffer_factor ");
  INFO(small.output);
  const RunResult enough = runs.Train(2, "enough", Settings(2, factor.substr(0, factor.find(' '))));
  INFO(enough.output);
  CHECK(enough.code == 0);
  CHECK(Replays(small) > 0);
  CHECK(Replays(enough) == 0);
  CHECK(runs.Steps("enough") == runs.Steps("small"));
}

TEST_CASE("an expert that alone exceeds the window goes in chunks: within 1e-6, and deduplicated runs too") {
  ManyRanks runs;
  for (const char* mode : {"expanded", "deduplicated"}) {
    const std::string m = StrCat("ep.mode=", mode), ample = StrCat("ample_", mode);
    REQUIRE(runs.Train(4, ample, Settings(4, "-1", {m, "precision.compute=fp64"})).code == 0);
    for (const char* factor : {"0.1", "0.4", "1.5"}) {
      const std::string name = StrCat("chunks_", mode, "_", factor);
      INFO(name);
      const RunResult run = runs.Train(4, name, Settings(4, factor, {m, "precision.compute=fp64"}));
      INFO(run.output);
      REQUIRE(run.code == 0);
      CHECK(Replays(run) > 0);
      CHECK(Contains(run.output, "a balanced load alone needs 1. Every") == (std::string(factor) != "1.5"));
      CHECK(LargestDifference(runs.Tensors(name, 14), runs.Tensors(ample, 14)) < 1e-6);
    }
  }
  // In float, where sums in another order show.
  REQUIRE(runs.Train(2, "float", Settings(2, "-1")).code == 0);
  REQUIRE(runs.Train(2, "float_chunks", Settings(2, "0.1")).code == 0);
  const auto a = runs.Steps("float"), b = runs.Steps("float_chunks");
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i)
    CHECK(std::abs(NumberIn(a[i], "loss") / NumberIn(b[i], "loss") - 1) < 1e-6);
}

TEST_CASE("a run with replays that is stopped and resumed is the straight one") {
  ManyRanks runs;
  const std::vector<std::string> settings = Settings(2, "1", {"ep.overflow_check_every_n_steps=4"});
  const RunResult straight = runs.Train(2, "straight", settings);
  std::vector<std::string> half = settings;
  half.push_back("train.stop_at_step=7");
  REQUIRE(runs.Train(2, "halves", half).code == 0);
  const RunResult rest = runs.Train(2, "halves", settings);
  INFO(rest.output);
  CHECK(rest.code == 0);
  CHECK(Replays(rest) == Replays(straight));
  CHECK(runs.Steps("halves") == runs.Steps("straight"));
  CHECK(HashOf(rest) == HashOf(straight));
}

}  // namespace
}  // namespace yardmaster::testing
