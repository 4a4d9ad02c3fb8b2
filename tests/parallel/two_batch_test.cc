// Two micro-batches in turn (runtime.two_batch_overlap): the run is the one of one after the other, to the bit.
#include "tests/catch.h"
#include "tests/train/many_ranks.h"

namespace yardmaster::testing {
namespace {

TEST_CASE("two micro-batches in turn change no bit") {
  ManyRanks runs;
  struct Case {
    const char* name;
    int ranks;
    std::vector<std::string> settings;
  };
  const std::vector<Case> cases = {
      {"alone", 1, {"train.global_batch_size=4"}},
      {"odd", 2, {"train.global_batch_size=6", "parallel.ep=2"}},
      {"deduplicated", 2, {"train.global_batch_size=8", "parallel.ep=2", "ep.mode=deduplicated"}},
      {"recompute", 2, {"train.global_batch_size=8", "parallel.ep=2", "runtime.recompute=projections"}},
      {"small windows", 2, {"train.global_batch_size=8", "parallel.ep=2", "ep.ragged_buffer_factor=1"}},
      {"fp8_block", 2, {"train.global_batch_size=8", "parallel.ep=2", "precision.compute=fp8_block"}},
      {"8-bit rows",
       2,
       {"train.global_batch_size=8", "parallel.ep=2", "precision.compute=mxfp8", "ep.payload=recipe"}},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    std::string sha;
    for (const bool in_turn : {false, true}) {
      std::vector<std::string> settings = c.settings;
      settings.insert(settings.end(), {"train.micro_batch_size=1", "train.steps=6", "runtime.device=cpu",
                                       StrCat("runtime.two_batch_overlap=", in_turn ? "true" : "false")});
      const std::string name = StrCat(c.name, in_turn ? "_in_turn" : "");
      const RunResult run = runs.Train(c.ranks, name, settings);
      INFO(run.output);
      REQUIRE(run.code == 0);
      CHECK(Contains(run.output, "second saved") == in_turn);
      if (in_turn) {
        CHECK(HashOf(run) == sha);
        CHECK(runs.Steps(name) == runs.Steps(c.name));
      }
      sha = HashOf(run);
    }
  }
}

TEST_CASE("with multi-token prediction the embedding's gradient is summed in another order, no more") {
  ManyRanks runs;
  const auto train = [&](const std::string& name, const char* in_turn) {
    const RunResult run = runs.Train(1, name, {"train.global_batch_size=4", "train.micro_batch_size=1", "train.steps=6",
                                               "runtime.device=cpu", "precision.compute=fp64",
                                               "model.num_nextn_predict_layers=1", "train.mtp_loss_weight=0.3",
                                               StrCat("runtime.two_batch_overlap=", in_turn)});
    INFO(run.output);
    REQUIRE(run.code == 0);
  };
  train("one", "false");
  train("two", "true");
  CHECK(LargestDifference(runs.Tensors("two", 6), runs.Tensors("one", 6)) < 1e-8);
}

TEST_CASE("a step of one micro-batch has no two to take turns") {
  ManyRanks runs;
  const RunResult run =
      runs.Train(1, "run", {"train.global_batch_size=2", "train.micro_batch_size=2", "runtime.two_batch_overlap=true"});
  INFO(run.output);
  CHECK(run.code == static_cast<int>(ExitCode::kConfig));
  CHECK(Contains(run.output, "runtime.two_batch_overlap: needs two micro-batches in a step"));
}

}  // namespace
}  // namespace yardmaster::testing
