#include "src/comm/ep/ep_plan.h"

#include <memory>

#include "src/comm/ep/cuda/peer_dispatcher.h"
#include "src/comm/ep/cuda/peer_table.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

// All choices of K of E experts, counted.
double CountedRanks(int ep, int E, int K) {
  int64_t choices = 0, ranks = 0;
  for (int mask = 0; mask < 1 << E; ++mask) {
    if (__builtin_popcount(static_cast<unsigned>(mask)) != K) continue;
    ++choices;
    for (int q = 0; q < ep; ++q) ranks += (mask >> (q * (E / ep)) & ((1 << (E / ep)) - 1)) != 0;
  }
  return static_cast<double>(ranks) / static_cast<double>(choices);
}

TEST_CASE("expected ranks of a token are those of all choices") {
  for (int E : {8, 12}) {
    for (int ep : {1, 2, 4}) {
      for (int K : {1, 2, 3, 5, 8}) CHECK(ExpectedRanks(ep, E, K) == Approx(CountedRanks(ep, E, K)));
    }
  }
  // 2 of 4 groups of 4 experts on 4 ranks: as 8 experts on 2 ranks.
  CHECK(ExpectedRanks(4, 16, 3, 4, 2) == Approx(CountedRanks(2, 8, 3)));
}

TEST_CASE("the mode is deduplicated where a token has several experts on a rank") {
  CHECK(ModeFor(1, 64, 6) == DispatchMode::kExpanded);  // nothing crosses
  CHECK(ModeFor(2, 256, 8) == DispatchMode::kDeduplicated);
  CHECK(ModeFor(8, 256, 8) == DispatchMode::kDeduplicated);
  CHECK(ModeFor(64, 256, 8) == DispatchMode::kExpanded);
  CHECK(ModeFor(64, 256, 8, 8, 4) == DispatchMode::kExpanded);
  CHECK(ModeFor(8, 8, 1) == DispatchMode::kExpanded);
}

TEST_CASE("windows: the factor rounded up, at most the worst case") {
  EpOptions o{.num_experts = 16, .top_k = 4, .ep = 8};
  CHECK(o.window_rows(10) == 8 * 10 * 2);
  CHECK(o.tokens_received(10) == 80);
  o.ragged_buffer_factor = 1.01;
  CHECK(o.window_rows(10) == 41);
  CHECK(o.tokens_received(10) == 41);
  o.ragged_buffer_factor = 100;
  CHECK(o.window_rows(10) == 160);
  o.least_tokens = 20;
  CHECK(o.window_rows(10) == 320);
  CHECK(o.rows_per_token() == 4);
  o.mode = DispatchMode::kDeduplicated;
  CHECK(o.rows_per_token() == 4);
  o.ep = 2;
  CHECK(o.rows_per_token() == 2);
}

// A table over host memory: what is where.
class HostTable : public PeerTable {
 public:
  HostTable() : PeerTable(1, 2) {}

 private:
  Region Map(size_t bytes) override {
    memory_.push_back(std::make_unique<char[]>(2 * bytes));
    char* const base = memory_.back().get();
    return {bytes, {base, base + bytes}};
  }
  std::vector<std::unique_ptr<char[]>> memory_;
};

TEST_CASE("a peer table finds what peers reach, and nothing else") {
  HostTable table;
  char* const a = static_cast<char*>(table.Allocate(100));
  char* const b = static_cast<char*>(table.Allocate(50));
  CHECK(a == table.region(0).base[1]);
  CHECK(table.Find(a, 100)->region == 0);
  CHECK(table.Find(a + 60, 40)->offset == 60);
  CHECK(table.Find(b + 50, 0)->region == 1);
  CHECK(!table.Find(a + 60, 41).has_value());
  CHECK(!table.Find(a - 1, 1).has_value());  // the peer's copy
  CHECK_THROWS_AS(PeerDispatcher({.num_experts = 6, .top_k = 2, .ep = 4}, {}, nullptr, nullptr), Error);
}

TEST_CASE("a dry dispatcher over peer memory plans both arenas, in rounds too") {
  const auto dry = MakeDryDevice(DeviceKind::kCuda);
  const Stream stream(dry.get());
  const int64_t T = 64, K = 4, D = 32;
  for (const DispatchMode mode : {DispatchMode::kExpanded, DispatchMode::kDeduplicated}) {
    const EpOptions o{.num_experts = 16, .top_k = K, .ep = 4, .ragged_buffer_factor = 1.5, .mode = mode};
    PeerDispatcher dispatcher(o, {}, nullptr, nullptr);
    const int64_t R = dispatcher.window_rows(T), N = o.tokens_received(T);
    Arena saved("saved", dry.get()), work("work", dry.get());
    RoutingHandle handle;
    const Tensor idx(nullptr, DType::kI32, {T, K}), x(nullptr, DType::kBF16, {T, D}), rows(nullptr, DType::kBF16, {R, D}),
        w(nullptr, DType::kF32, {T, K}), w_R(nullptr, DType::kF32, {R}), overflow(nullptr, DType::kI32, {1});
    dispatcher.Plan(stream, idx, overflow, &handle, saved, work);
    const size_t plan = work.high_water();
    dispatcher.Dispatch(stream, handle, x, w, rows, w_R, work);
    dispatcher.Combine(stream, handle, rows, x, {}, x, w_R, w, work);
    CHECK(work.top() == 0);
    CHECK(handle.tokens.defined() == !o.expanded());
    if (o.expanded()) {
      CHECK(work.high_water() == plan);  // rows wait nowhere
    } else {
      CHECK(handle.recv_slot.shape() == Shape({N, K}));
      CHECK(work.high_water() >= static_cast<size_t>(std::max(N, T * K) * D * 2));
    }
    RoundDispatcher& rounds = *dispatcher.rounds();
    rounds.PlanRounds(stream, idx, &handle, saved, work);
    CHECK(rounds.NumRounds(handle) == 1);
    const Tensor sent(nullptr, DType::kBF16, {T * K, D});
    rounds.Send(stream, handle, 0, sent, rows);
    rounds.Return(stream, handle, 0, rows, sent);
    // Shapes that do not fit are bugs, dry as well.
    CHECK_THROWS_AS(dispatcher.Dispatch(stream, handle, x, w, rows, {}, work), InternalError);
    CHECK_THROWS_AS(dispatcher.Dispatch(stream, handle, x, {}, x, {}, work), InternalError);
    CHECK_THROWS_AS(dispatcher.Combine(stream, handle, rows, w, {}, x, {}, {}, work), InternalError);
  }
  PeerDispatcher ample({.num_experts = 16, .top_k = K, .ep = 4}, {}, nullptr, nullptr);
  CHECK(ample.rounds() == nullptr);
}

}  // namespace
}  // namespace yardmaster
