// The memory of exact mode, on the dry device: what a rank of an expert-parallel group plans.
#include <map>

#include "src/comm/communicator.h"
#include "src/comm/ep/mpi_dispatcher.h"
#include "src/train/engine.h"
#include "tests/catch.h"
#include "tests/train/small_run.h"

namespace yardmaster::testing {
namespace {

std::map<std::string, size_t> Bytes(const Config& config, MpiDispatcher& dispatcher, bool exact) {
  const std::unique_ptr<Device> dry = MakeDryDevice();
  const std::unique_ptr<Communicator> self = MakeSelfCommunicator("self");
  Engine engine(EngineMode::kTraining, config, {self.get(), self.get(), self.get()}, &dispatcher, dry.get(),
                {});
  engine.Step(2, 64, exact);
  std::map<std::string, size_t> bytes;
  for (const ArenaSize& arena : engine.HighWater()) bytes[arena.name] = arena.bytes;
  return bytes;
}

TEST_CASE("a replay in rounds saves no more for backward than an ordinary step") {
  const Config config = SmallRun("nowhere", "run").loaded.config;
  for (DispatchMode mode : {DispatchMode::kExpanded, DispatchMode::kDeduplicated}) {
    MpiDispatcher dispatcher({.num_experts = config.model.n_routed_experts,
                              .top_k = config.model.num_experts_per_tok,
                              .ep = 4,
                              .ragged_buffer_factor = 1.5,
                              .mode = mode},
                             nullptr);
    const auto ordinary = Bytes(config, dispatcher, false), exact = Bytes(config, dispatcher, true);
    for (const char* arena : {"weights", "gradients", "optimizer", "saved", "step"}) {
      INFO(arena);
      CHECK(ordinary.at(arena) > 0);
      CHECK(exact.at(arena) <= ordinary.at(arena));
    }
  }
}

TEST_CASE("a smaller window saves memory") {
  const Config config = SmallRun("nowhere", "run").loaded.config;
  size_t before = 0;
  for (double factor : {1.0, 2.0, -1.0}) {
    MpiDispatcher dispatcher({.num_experts = config.model.n_routed_experts,
                              .top_k = config.model.num_experts_per_tok,
                              .ep = 4,
                              .ragged_buffer_factor = factor},
                             nullptr);
    const size_t saved = Bytes(config, dispatcher, false).at("saved");
    CHECK(saved > before);
    before = saved;
  }
}

}  // namespace
}  // namespace yardmaster::testing
