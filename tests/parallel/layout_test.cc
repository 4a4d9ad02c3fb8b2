// The same training in different layouts. The gradient of the first step is read from the first moments after
// it: m = (1 - beta1) g.
#include "tests/catch.h"
#include "tests/train/many_ranks.h"

namespace yardmaster::testing {
namespace {

struct Layout {
  const char* name;
  int ranks;
  std::vector<std::string> overrides;
};

std::vector<std::string> With(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<std::string> Settings(const std::string& compute) {
  return {"precision.compute=" + compute, "schedule.learning_rate=2e-3",
          "train.micro_batch_size=1",     "train.steps=20",
          "checkpoint.every_steps=1",     "checkpoint.keep_latest=0",
          "train.eval_sequences=8"};
}

const std::vector<Layout>& Layouts() {
  static const std::vector<Layout> layouts = {
      {"alone", 1, {}},
      {"dp2", 2, {"parallel.ep=1"}},
      {"ep2", 2, {"parallel.ep=2"}},
      {"ep2_zero0", 2, {"parallel.ep=2", "parallel.zero=0"}},
      {"ep2_deduplicated", 2, {"parallel.ep=auto", "ep.mode=deduplicated"}},
      {"ep4", 4, {"parallel.ep=4", "ep.mode=auto"}},
      {"ep4_deduplicated_zero0", 4, {"parallel.ep=4", "parallel.zero=0", "ep.mode=deduplicated"}},
      {"dp4_ep2", 4, {"parallel.ep=2"}},
      {"dp4_ep2_zero0", 4, {"parallel.ep=2", "parallel.zero=0"}},
  };
  return layouts;
}

TEST_CASE("in double, every layout has the gradients of one rank, and its weights after 20 steps") {
  ManyRanks runs;
  for (const Layout& l : Layouts()) {
    INFO(l.name);
    const RunResult result = runs.Train(l.ranks, l.name, With(Settings("fp64"), l.overrides));
    INFO(result.output);
    REQUIRE(result.code == 0);
    if (l.ranks == 1) continue;
    const auto first = runs.Tensors(l.name, 1), first_alone = runs.Tensors("alone", 1);
    CHECK(LargestDifference(first, first_alone, "adamw.m/") < 1e-10);
    const auto last = runs.Tensors(l.name, 20), last_alone = runs.Tensors("alone", 20);
    CHECK(LargestDifference(last, last_alone, "model.") < 1e-8);
    CHECK(LargestDifference(last, last_alone, "lm_head") < 1e-8);
    // The bias moves by whole steps: any expert counted wrongly would show.
    for (const auto& [name, bias] : last) {
      if (Contains(name, "e_score_correction_bias")) CHECK(bias == last_alone.at(name));
    }
    // It is training: what was compared is not what it was at the start.
    CHECK(LargestDifference(last, first, "model.") > 1e-3);
  }
}

TEST_CASE("in float, losses agree; the same layout twice and ZeRO on and off are bit-identical") {
  ManyRanks runs;
  for (const Layout& l : Layouts()) {
    INFO(l.name);
    const RunResult result =
        runs.Train(l.ranks, l.name, With(Settings("fp32"), With(l.overrides, {"train.steps=10"})));
    INFO(result.output);
    REQUIRE(result.code == 0);
    const auto steps = runs.Steps(l.name), alone = runs.Steps("alone");
    REQUIRE(steps.size() == 10);
    for (size_t i = 0; i < 10; ++i)
      CHECK(std::abs(NumberIn(steps[i], "loss") - NumberIn(alone[i], "loss")) <
            1e-5 * NumberIn(alone[i], "loss"));
  }
  REQUIRE(runs.Train(4, "again", With(Settings("fp32"), {"train.steps=10", "parallel.ep=2"})).code == 0);
  for (const auto& [a, b] : std::vector<std::pair<const char*, const char*>>{
           {"dp4_ep2", "again"}, {"dp4_ep2", "dp4_ep2_zero0"}, {"ep2", "ep2_zero0"}}) {
    INFO(a << ", " << b);
    CHECK(runs.Steps(a) == runs.Steps(b));
    CHECK((runs.Tensors(a, 10) == runs.Tensors(b, 10)));
  }
}

TEST_CASE("8-bit weights: the same bits whether a rank updates all rows or gathers them; one rank agrees") {
  ManyRanks runs;
  const auto train = [&](int ranks, const std::string& name, const std::vector<std::string>& overrides) {
    const RunResult result = runs.Train(
        ranks, name, With(Settings("fp8_block"), With({"train.steps=3", "runtime.device=cpu"}, overrides)));
    INFO(result.output);
    REQUIRE(result.code == 0);
  };
  train(1, "alone", {});
  train(2, "dp2", {"parallel.ep=1"});
  train(2, "dp2_zero0", {"parallel.ep=1", "parallel.zero=0"});
  CHECK(runs.Steps("dp2") == runs.Steps("dp2_zero0"));
  CHECK((runs.Tensors("dp2", 3) == runs.Tensors("dp2_zero0", 3)));
  // Gradients are summed in another order: a code may round the other way.
  const auto alone = runs.Steps("alone"), several = runs.Steps("dp2");
  for (size_t i = 0; i < 3; ++i)
    CHECK(NumberIn(several[i], "loss") == Approx(NumberIn(alone[i], "loss")).epsilon(2e-3));
}

// Not in CI: scripts/test.sh --all runs it.
TEST_CASE("eight ranks, every layout and mode, with and without ample windows", "[.grid]") {
  ManyRanks runs;
  const auto settings = [](std::vector<std::string> more) {
    return With(Settings("fp64"), With({"train.global_batch_size=8", "train.steps=12"}, more));
  };
  REQUIRE(runs.Train(1, "alone", settings({})).code == 0);
  const auto first_alone = runs.Tensors("alone", 1), last_alone = runs.Tensors("alone", 12);
  for (const char* ep : {"1", "2", "4", "8"}) {
    for (const char* zero : {"0", "1"}) {
      for (const char* mode : {"expanded", "deduplicated"}) {
        for (const char* factor : {"-1", "1"}) {
          if (std::string(ep) == "1" && (std::string(factor) == "1" || std::string(mode) == "deduplicated"))
            continue;
          const std::string name = StrCat("ep", ep, "_zero", zero, "_", mode, "_", factor);
          INFO(name);
          const RunResult result = runs.Train(
              8, name,
              settings({StrCat("parallel.ep=", ep), StrCat("parallel.zero=", zero), StrCat("ep.mode=", mode),
                        StrCat("ep.ragged_buffer_factor=", factor), "ep.overflow_check_every_n_steps=5"}));
          INFO(result.output);
          REQUIRE(result.code == 0);
          CHECK(LargestDifference(runs.Tensors(name, 1), first_alone, "adamw.m/") < 1e-10);
          CHECK(LargestDifference(runs.Tensors(name, 12), last_alone, "model.") < 1e-8);
        }
      }
    }
  }
}

TEST_CASE("ep: auto is said at the start") {
  ManyRanks runs;
  const RunResult two = runs.Train(2, "two", {"train.steps=1", "parallel.ep=auto"});
  CHECK(Contains(two.output, "2 ranks = dp 2 x pp 1, ep 2 (auto), zero 1"));
  const RunResult one = runs.Train(1, "one", {"train.steps=1", "parallel.ep=auto"});
  CHECK(Contains(one.output, "1 rank = dp 1 x pp 1, ep 1 (auto), zero 1"));
}

TEST_CASE("a dense model trains on several ranks") {
  ManyRanks runs;
  const RunResult result = runs.Train(
      2, "dense",
      {"train.steps=2", "parallel.ep=auto", "model.n_routed_experts=0", "model.num_experts_per_tok=0",
       "model.n_shared_experts=0", "model.n_group=1", "model.topk_group=1"});
  INFO(result.output);
  CHECK(result.code == 0);
}

}  // namespace
}  // namespace yardmaster::testing
