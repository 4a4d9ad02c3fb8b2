// A checkpoint of one layout, resumed in another.
#include <filesystem>

#include "tests/catch.h"
#include "tests/train/many_ranks.h"

namespace yardmaster::testing {
namespace {

struct Layout {
  const char* name;
  int ranks;
  const char* ep;
  const char* zero;
};

TEST_CASE("ep4 on one rank, ep1, ep2, and back: equal state, and the next step within 1e-6") {
  ManyRanks runs;
  const auto settings = [](const Layout& l, int stop) {
    return std::vector<std::string>{StrCat("parallel.ep=", l.ep), StrCat("parallel.zero=", l.zero),
                                    "train.micro_batch_size=1", StrCat("train.stop_at_step=", stop)};
  };
  const Layout ep4{"ep4", 4, "4", "1"};
  for (const Layout& l : {Layout{"alone", 1, "1", "1"}, Layout{"dp2_zero0", 2, "1", "0"},
                          Layout{"ep2", 2, "2", "1"}, Layout{"dp4_ep2", 4, "2", "1"}}) {
    for (const auto& [from, to] : {std::pair{ep4, l}, std::pair{l, ep4}}) {
      INFO(from.name << " to " << to.name);
      const std::string name = StrCat(from.name, "_to_", to.name), copy = name + "_own";
      const RunResult saved = runs.Train(from.ranks, name, settings(from, 3));
      INFO(saved.output);
      REQUIRE(saved.code == 0);
      std::filesystem::copy(runs.Path(name), runs.Path(copy), std::filesystem::copy_options::recursive);
      const RunResult loaded = runs.Train(to.ranks, name, settings(to, 3));
      INFO(loaded.output);
      REQUIRE(loaded.code == 0);
      CHECK(Contains(loaded.output, "resume       from step 3"));
      CHECK(HashOf(loaded) == HashOf(saved));

      REQUIRE(runs.Train(to.ranks, name, settings(to, 4)).code == 0);
      REQUIRE(runs.Train(from.ranks, copy, settings(from, 4)).code == 0);
      const double there = NumberIn(runs.Steps(name)[3], "loss"),
                   here = NumberIn(runs.Steps(copy)[3], "loss");
      CHECK(std::abs(there - here) < 1e-6 * here);
    }
  }
}

}  // namespace
}  // namespace yardmaster::testing
