// Dispatch and combine over peer memory with virtual ranks of one GPU, against the plain reference: plans, windows, sums, bit
// for bit, both modes. Also what a captured step asks, exact replay in rounds, and peers that do not come.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/catch.h"
#include "tests/comm/ep_reference.h"

#if YM_HAVE_CUDA

#include "tests/cuda/ep_world.h"

namespace yardmaster::testing {
namespace {

const bool kPrepared = (VirtualPeers::PrepareProcess(), true);

#define YM_NEEDS_GPU_HERE()                                                                           \
  const CudaStatus ym_status = CudaAvailability();                                                    \
  if (ym_status.usable == 0) YM_SKIP("needs a GPU: " + ym_status.reason);                             \
  static_cast<void>(kPrepared)

Device& TestDevice() {
  static const std::unique_ptr<Device> device = MakeCudaDevice({});
  return *device;
}

template <class T>
bool Same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// The inputs of all ranks, and where they lie.
template <class X>
struct Inputs {
  using W = EpAccum<X>;
  std::vector<std::vector<X>> x, y_R, residual, addend;
  std::vector<std::vector<W>> w, dw_R;
  struct OnDevice {
    Tensor idx, overflow, x, w, x_R, w_R, y_R, dw_R, residual, addend, y, dw;
  };
  std::vector<OnDevice> at;

  Inputs(EpWorld& world, const EpProblem& p, const EpOptions& options, uint64_t seed) {
    for (int s = 0; s < world.size(); ++s) {
      const int64_t T = p.T[s], R = options.window_rows(T);
      const uint64_t stream = seed * 1000 + static_cast<uint64_t>(10 * s);
      x.push_back(EpValues<X>(stream, T * p.D));
      w.push_back(EpValues<W>(stream + 1, T * p.K));
      y_R.push_back(EpValues<X>(stream + 2, R * p.D));
      dw_R.push_back(EpValues<W>(stream + 3, R));
      residual.push_back(seed % 3 == 0 ? std::vector<X>() : EpValues<X>(stream + 4, T * p.D));
      addend.push_back(seed % 2 == 0 ? std::vector<X>() : EpValues<X>(stream + 5, T * p.D));
      OnDevice d;
      d.idx = world.Make<int32_t>(s, {T, p.K}, p.IdxOf(s));
      d.overflow = world.Make<int32_t>(s, {1}, {0});
      d.x = world.Make<X>(s, {T, p.D}, x[s]);
      d.w = world.Make<W>(s, {T, p.K}, w[s]);
      if (s % 2 == 1) world.rank(s).saved.Allocate("peers' addresses differ", DType::kU8, {256 * s});
      d.x_R = world.Poisoned(s, DTypeOf<X>::value, {R, p.D});
      d.w_R = world.Poisoned(s, DTypeOf<W>::value, {R});
      d.y_R = world.Make<X>(s, {R, p.D}, y_R[s]);
      d.dw_R = world.Make<W>(s, {R}, dw_R[s]);
      if (!residual[s].empty()) d.residual = world.Make<X>(s, {T, p.D}, residual[s]);
      if (!addend[s].empty()) d.addend = world.Make<X>(s, {T, p.D}, addend[s]);
      d.y = world.Poisoned(s, DTypeOf<X>::value, {T, p.D});
      d.dw = world.Poisoned(s, DTypeOf<W>::value, {T, p.K});
      at.push_back(d);
    }
    world.Wait();
  }
};

void PlanAll(EpWorld& world, const auto& in) {
  for (int s = 0; s < world.size(); ++s) {
    EpWorld::Rank& r = world.rank(s);
    r.dispatcher->Plan(world.stream(s), in.at[s].idx, in.at[s].overflow, &r.handle_, r.saved, r.work);
  }
}
void DispatchAll(EpWorld& world, const auto& in) {
  for (int s = 0; s < world.size(); ++s) {
    EpWorld::Rank& r = world.rank(s);
    r.dispatcher->Dispatch(world.stream(s), r.handle_, in.at[s].x, in.at[s].w, in.at[s].x_R, in.at[s].w_R, r.work);
  }
}
// backward: without the weights, as of dy; as rows of bytes, which 8-bit rows are.
void DispatchRowsAll(EpWorld& world, const auto& in) {
  const auto bytes = [](const Tensor& t) {
    return Tensor(t.data(), DType::kU8, {t.dim(0), t.dim(1) * DTypeBytes(t.dtype())});
  };
  for (int s = 0; s < world.size(); ++s) {
    EpWorld::Rank& r = world.rank(s);
    r.dispatcher->Dispatch(world.stream(s), r.handle_, bytes(in.at[s].x), {}, bytes(in.at[s].x_R), {}, r.work);
  }
}
void CombineAll(EpWorld& world, const auto& in, bool weights = true) {
  for (int s = 0; s < world.size(); ++s) {
    EpWorld::Rank& r = world.rank(s);
    const auto& d = in.at[s];
    r.dispatcher->Combine(world.stream(s), r.handle_, d.y_R, d.residual, d.addend, d.y, weights ? d.dw_R : Tensor(),
                          weights ? d.dw : Tensor(), r.work);
  }
}

// CHECKs cost time in Catch; a case counts its mismatches by name.
struct Mismatches {
  std::string text;
  void Expect(bool ok, const std::string& what, int rank) {
    if (!ok) text += what + " of rank " + std::to_string(rank) + "; ";
  }
};

void CheckPlan(EpWorld& world, const EpProblem& p, const EpOptions& options, const std::vector<EpExpectedPlan>& plans,
               const auto& in, Mismatches& bad) {
  for (int s = 0; s < world.size(); ++s) {
    const RoutingHandle& h = world.rank(s).handle_;
    const EpExpectedPlan& want = plans[s];
    bad.Expect(world.Get<int64_t>(h.offsets) == want.offsets, "offsets", s);
    bad.Expect(world.Get<int64_t>(h.counts) == want.counts, "counts", s);
    bad.Expect(world.Get<int64_t>(h.begins) == want.begins, "begins", s);
    bad.Expect(world.Get<int64_t>(h.needed)[0] == want.needed, "needed", s);
    bad.Expect(world.Get<int32_t>(in.at[s].overflow)[0] == static_cast<int>(want.overflow), "overflow", s);
    bad.Expect(world.Get<int64_t>(h.send_offsets) == want.send_offsets, "send_offsets", s);
    bad.Expect(world.Get<int64_t>(h.send_slot) == want.send_slot, "send_slot", s);
    if (options.expanded()) continue;
    bad.Expect(world.Get<int64_t>(h.recv_offsets) == want.recv_offsets, "recv_offsets", s);
    bad.Expect(world.Get<int64_t>(h.recv_slot, static_cast<int64_t>(want.recv_slot.size())) == want.recv_slot, "recv_slot", s);
    static_cast<void>(p);
  }
}

template <class X>
std::string RunCase(EpWorld& world, const EpProblem& p, EpOptions options, uint64_t seed, int blocks = 0) {
  using W = EpAccum<X>;
  options.num_experts = p.E;
  options.top_k = p.K;
  options.least_tokens = p.most();
  world.Make(options, 5, blocks);
  options.ep = world.size();
  const std::vector<EpExpectedPlan> plans = ExpectPlans(p, options);
  const Inputs<X> in(world, p, options, seed);
  Mismatches bad;
  PlanAll(world, in);
  DispatchAll(world, in);
  if (seed % 2 == 0) {
    world.Wait();
    for (int s = 0; s < world.size(); ++s) world.Poison(in.at[s].x_R);  // every row must come again
  }
  DispatchRowsAll(world, in);  // the handle serves again, as in backward
  world.Wait();
  CheckPlan(world, p, options, plans, in, bad);
  for (int q = 0; q < world.size(); ++q) {
    std::vector<X> want_x, all = world.Get<X>(in.at[q].x_R);
    std::vector<W> want_w, weights = world.Get<W>(in.at[q].w_R);
    ExpectWindow(p, plans, q, in.x, in.w, &want_x, &want_w);
    const auto poisoned = [](const auto& v, size_t from) {
      return std::all_of(reinterpret_cast<const unsigned char*>(v.data() + from),
                         reinterpret_cast<const unsigned char*>(v.data() + v.size()), [](unsigned char c) { return c == 0xFF; });
    };
    bad.Expect(poisoned(all, want_x.size()) && poisoned(weights, want_w.size()), "rows beyond the last", q);
    all.resize(want_x.size());
    weights.resize(want_w.size());
    bad.Expect(Same(all, want_x), "x_R", q);
    bad.Expect(Same(weights, want_w), "w_R", q);
  }
  CombineAll(world, in, seed % 5 != 4);
  CombineAll(world, in, true);
  world.Wait();
  for (int s = 0; s < world.size(); ++s) {
    std::vector<X> want_y;
    std::vector<W> want_dw;
    ExpectCombine(p, options, plans, s, in.y_R, in.dw_R, in.residual[s], in.addend[s], &want_y, &want_dw);
    bad.Expect(Same(world.Get<X>(in.at[s].y), want_y), "y", s);
    bad.Expect(Same(world.Get<W>(in.at[s].dw), want_dw), "dw", s);
  }
  return bad.text + world.Failures();
}

std::string RunCase(EpWorld& world, DType type, const EpProblem& p, const EpOptions& options, uint64_t seed, int blocks = 0) {
  switch (type) {
    case DType::kBF16: return RunCase<BFloat16>(world, p, options, seed, blocks);
    case DType::kF32: return RunCase<float>(world, p, options, seed, blocks);
    default: return RunCase<double>(world, p, options, seed, blocks);
  }
}

constexpr DType kTypes[] = {DType::kBF16, DType::kF32, DType::kF64};
constexpr DispatchMode kModes[] = {DispatchMode::kExpanded, DispatchMode::kDeduplicated};

TEST_CASE("ep: every routing, mode and type with 2, 4, 8 and 16 virtual ranks") {
  YM_NEEDS_GPU_HERE();
  for (int n : {2, 4, 8, 16}) {
    EpWorld world(&TestDevice(), n, size_t{24} << 20, size_t{24} << 20);
    uint64_t seed = 0;
    for (EpRouting routing : kEpRoutings) {
      for (DispatchMode mode : kModes) {
        for (DType type : kTypes) {
          INFO(n << " ranks, routing " << static_cast<int>(routing) << ", mode " << static_cast<int>(mode) << ", "
                 << DTypeName(type));
          // D = 24 and 1032: bulk copies, one piece and several; D = 7: one element at a time.
          for (int64_t D : {24, 1032, 7}) {
            const EpProblem p = MakeEpProblem(n, routing, 32, 4, D, {D > 1000 ? 9 : 33}, ++seed);
            CHECK(RunCase(world, type, p, {.mode = mode}, seed) == "");
          }
        }
      }
    }
  }
}

TEST_CASE("ep: 1000 random cases under a fixed seed, 200 for each number of ranks") {
  YM_NEEDS_GPU_HERE();
  for (int n : {1, 2, 4, 8, 16}) DYNAMIC_SECTION(n << " ranks") {
    EpWorld world(&TestDevice(), n, size_t{4} << 20, size_t{8} << 20);
    for (uint64_t i = 0; i < 200; ++i) {
      const auto draw = [&](uint64_t j, int64_t below) {
        return static_cast<int64_t>(PhiloxUniform(31 + static_cast<uint64_t>(n), i, j) * static_cast<double>(below));
      };
      const int64_t E = n * (1 + draw(0, 4)), K = 1 + draw(1, std::min<int64_t>(E, 9)), D = 1 + draw(2, 3) * 8 + draw(3, 2) * 7;
      std::vector<int64_t> T;
      for (int s = 0; s < n; ++s) T.push_back(draw(10, 4) == 0 ? draw(static_cast<uint64_t>(20 + s), 2) : draw(static_cast<uint64_t>(20 + s), 40));
      const auto routing = kEpRoutings[draw(4, 7)];
      const EpOptions options{.ragged_buffer_factor = draw(5, 3) > 0 ? -1 : 0.3 + 0.1 * static_cast<double>(draw(6, 12)),
                              .mode = kModes[draw(7, 2)]};
      const EpProblem p = MakeEpProblem(n, routing, E, K, D, T, 7000 + i, draw(8, 4) == 0 ? 0.3 : 0);
      const DType type = kTypes[draw(9, 3)];
      const int blocks = static_cast<int>(1 + draw(40, world.Blocks()));
      const std::string bad = RunCase(world, type, p, options, i, blocks);
      INFO(n << " ranks, case " << i << ", E " << E << ", K " << K << ", D " << D << ", " << DTypeName(type));
      REQUIRE(bad == "");
    }
  }
}

TEST_CASE("ep: a peer that stops is named within the deadline, and the step changes nothing") {
  YM_NEEDS_GPU_HERE();
  for (const int stopped_before : {0, 1, 2}) {  // plan, dispatch, combine
    EpWorld world(&TestDevice(), 4, size_t{8} << 20, size_t{8} << 20);
    const EpProblem p = MakeEpProblem(4, EpRouting::kRandom, 8, 2, 64, {17}, 3);
    EpOptions options{.num_experts = 8, .top_k = 2, .ep = 4, .mode = DispatchMode::kExpanded};
    world.Make(options, 0.3);
    const Inputs<float> in(world, p, options, 1);
    const auto begin = std::chrono::steady_clock::now();
    for (int call = 0; call < 3; ++call) {
      for (int s = 0; s < 4; ++s) {
        if (s == 2 && call >= stopped_before) continue;
        EpWorld::Rank& r = world.rank(s);
        const auto& d = in.at[s];
        if (call == 0) r.dispatcher->Plan(world.stream(s), d.idx, d.overflow, &r.handle_, r.saved, r.work);
        if (call == 1) r.dispatcher->Dispatch(world.stream(s), r.handle_, d.x, d.w, d.x_R, d.w_R, r.work);
        if (call == 2) r.dispatcher->Combine(world.stream(s), r.handle_, d.y_R, {}, {}, d.y, {}, {}, r.work);
      }
    }
    world.Wait();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    CHECK(seconds < 30);  // it ended at all
    for (int s : {0, 1, 3}) {
      const auto failure = world.rank(s).dispatcher->Failure();
      REQUIRE(failure.has_value());
      INFO(failure->what);
      CHECK(failure->rank == s);
      CHECK(failure->peer == 2);
      CHECK(failure->expected == failure->seen + 1);
      CHECK(failure->what.find("rank 2 did not start") != std::string::npos);
      CHECK(world.Get<int32_t>(in.at[s].overflow)[0] == 1);
    }
    CHECK(!world.rank(2).dispatcher->Failure().has_value());
    // Nor does a later step, whatever rank 2 does by then: its plan has no rows.
    for (int s = 0; s < 4; ++s) world.Set<int32_t>(in.at[s].overflow, {0});
    world.Wait();
    for (int s : {0, 1, 3}) {
      EpWorld::Rank& r = world.rank(s);
      r.dispatcher->Plan(world.stream(s), in.at[s].idx, in.at[s].overflow, &r.handle_, r.saved, r.work);
    }
    world.Wait();
    for (int s : {0, 1, 3}) {
      CHECK(world.Get<int32_t>(in.at[s].overflow)[0] == 1);
      CHECK(world.Get<int64_t>(world.rank(s).handle_.offsets).back() == 0);
      CHECK(world.rank(s).dispatcher->Failure()->peer == 2);
    }
  }
}

TEST_CASE("ep: ranks that are at different operations say so") {
  YM_NEEDS_GPU_HERE();
  EpWorld world(&TestDevice(), 2, size_t{4} << 20, size_t{4} << 20);
  const EpProblem p = MakeEpProblem(2, EpRouting::kRandom, 4, 2, 16, {5}, 3);
  const EpOptions options{.num_experts = 4, .top_k = 2, .ep = 2};
  world.Make(options, 1);
  const Inputs<float> in(world, p, options, 1);
  PlanAll(world, in);
  world.rank(0).dispatcher->Dispatch(world.stream(0), world.rank(0).handle_, in.at[0].x, {}, in.at[0].x_R, {},
                                     world.rank(0).work);
  world.rank(1).dispatcher->Combine(world.stream(1), world.rank(1).handle_, in.at[1].y_R, {}, {}, in.at[1].y, {}, {},
                                    world.rank(1).work);
  world.Wait();
  CHECK(world.rank(0).dispatcher->Failure().value().what.find("rank 1 started combine") != std::string::npos);
  CHECK(world.rank(1).dispatcher->Failure().value().what.find("rank 0 started dispatch") != std::string::npos);
}

TEST_CASE("ep: a tensor that peers cannot reach is a bug that is named") {
  YM_NEEDS_GPU_HERE();
  EpWorld world(&TestDevice(), 2, size_t{4} << 20, size_t{4} << 20);
  const EpOptions options{.num_experts = 4, .top_k = 2, .ep = 2};
  world.Make(options, 1);
  RoutingHandle& handle = world.rank(0).handle_;
  const Tensor idx = world.Make<int32_t>(0, {2, 2}, {0, 1, 2, 3});
  AllocatePlan(options, idx, 2, 4, &handle, world.rank(0).saved);
  Arena elsewhere("elsewhere", &world.device());
  elsewhere.Commit(1 << 16);
  const Tensor x = world.Make<float>(0, {2, 4}, std::vector<float>(8)),
               x_R = elsewhere.Allocate("x_R", DType::kF32, {options.window_rows(2), 4});
  std::string text;
  try {
    world.rank(0).dispatcher->Dispatch(world.stream(0), handle, x, {}, x_R, {}, world.rank(0).work);
  } catch (const InternalError& e) {
    text = e.what();
  }
  CHECK(text.find("not in peer memory") != std::string::npos);
}

TEST_CASE("ep: a captured plan, dispatch and combine replays with other routings") {
  YM_NEEDS_GPU_HERE();
  const int n = 4;
  for (DispatchMode mode : kModes) {
    EpWorld world(&TestDevice(), n, size_t{16} << 20, size_t{16} << 20);
    EpOptions options{.num_experts = 16, .top_k = 4, .ep = n, .mode = mode};
    EpProblem p = MakeEpProblem(n, EpRouting::kRandom, 16, 4, 136, {29}, 1);
    world.Make(options);
    const Inputs<BFloat16> in(world, p, options, 1);
    std::vector<cudaGraphExec_t> graphs(n);
    for (int s = 0; s < n; ++s) {
      EpWorld::Rank& r = world.rank(s);
      const auto& d = in.at[s];
      cudaGraph_t graph = nullptr;
      world.device().Check(cudaStreamBeginCapture(world.cuda_stream(s), cudaStreamCaptureModeGlobal), "test", "capture");
      r.dispatcher->Plan(world.stream(s), d.idx, d.overflow, &r.handle_, r.saved, r.work);
      r.dispatcher->Dispatch(world.stream(s), r.handle_, d.x, d.w, d.x_R, d.w_R, r.work);
      r.dispatcher->Combine(world.stream(s), r.handle_, d.y_R, d.residual, d.addend, d.y, d.dw_R, d.dw, r.work);
      world.device().Check(cudaStreamEndCapture(world.cuda_stream(s), &graph), "test", "capture");
      world.device().Check(cudaGraphInstantiate(&graphs[s], graph, 0), "test", "instantiate");
      world.device().Check(cudaGraphUpload(graphs[s], world.cuda_stream(s)), "test", "upload");
      static_cast<void>(cudaGraphDestroy(graph));
    }
    world.Wait();
    for (uint64_t step = 0; step < 5; ++step) {
      p = MakeEpProblem(n, kEpRoutings[step], 16, 4, 136, {29}, 100 + step);
      for (int s = 0; s < n; ++s) world.Set(in.at[s].idx, p.IdxOf(s));
      world.Wait();
      for (int s = 0; s < n; ++s) world.device().Check(cudaGraphLaunch(graphs[s], world.cuda_stream(s)), "test", "launch");
      world.Wait();
      const std::vector<EpExpectedPlan> plans = ExpectPlans(p, options);
      Mismatches bad;
      CheckPlan(world, p, options, plans, in, bad);
      for (int s = 0; s < n; ++s) {
        std::vector<BFloat16> want_x, want_y;
        std::vector<float> want_w, want_dw;
        ExpectWindow(p, plans, s, in.x, in.w, &want_x, &want_w);
        ExpectCombine(p, options, plans, s, in.y_R, in.dw_R, in.residual[s], in.addend[s], &want_y, &want_dw);
        bad.Expect(Same(world.Get<BFloat16>(in.at[s].x_R, static_cast<int64_t>(want_x.size())), want_x), "x_R", s);
        bad.Expect(Same(world.Get<BFloat16>(in.at[s].y), want_y), "y", s);
        bad.Expect(Same(world.Get<float>(in.at[s].dw), want_dw), "dw", s);
      }
      CHECK(bad.text + world.Failures() == "");
    }
    for (cudaGraphExec_t graph : graphs) static_cast<void>(cudaGraphExecDestroy(graph));
  }
}

// An exact replay: each rank in a thread of its own, since the host waits for counts.
template <class X>
int64_t RunRounds(EpWorld& world, const EpProblem& p, DispatchMode mode, double factor) {
  using W = EpAccum<X>;
  const int n = world.size();
  EpOptions options{.num_experts = p.E, .top_k = p.K, .ragged_buffer_factor = factor, .mode = mode, .least_tokens = p.most()};
  world.Make(options);
  options.ep = n;
  const Inputs<X> in(world, p, options, 1);
  std::vector<int64_t> rounds(static_cast<size_t>(n));
  std::vector<Tensor> rows, weights, most;
  for (int s = 0; s < n; ++s) {
    rows.push_back(world.Poisoned(s, DTypeOf<X>::value, {p.T[s] * p.K, p.D}));
    weights.push_back(world.Poisoned(s, DTypeOf<W>::value, {p.T[s] * p.K}));
    most.push_back(world.Make<int64_t>(s, {1}, {0}));
    world.rank(s).dispatcher->set_rows_needed(most.back());
  }
  world.Wait();
  std::vector<std::thread> threads;
  for (int s = 0; s < n; ++s) {
    threads.emplace_back([&, s] {
      static_cast<void>(cudaSetDevice(0));
      EpWorld::Rank& r = world.rank(s);
      const Stream stream = world.stream(s);
      RoundDispatcher& d = *r.dispatcher->rounds();
      d.PlanRounds(stream, in.at[s].idx, &r.handle_, r.saved, r.work);
      d.Pack(stream, r.handle_, in.at[s].x, in.at[s].w, rows[s], weights[s]);
      rounds[s] = d.NumRounds(r.handle_);
      for (int64_t round = 0; round < rounds[s]; ++round) {
        // The expert is the identity: what was sent comes back.
        d.Send(stream, r.handle_, round, rows[s], in.at[s].x_R);
        d.Send(stream, r.handle_, round, weights[s], in.at[s].w_R);
        d.Return(stream, r.handle_, round, in.at[s].x_R, rows[s]);
        d.Return(stream, r.handle_, round, in.at[s].w_R, weights[s]);
        // These ranks are threads of one process. One that ran ahead until the launch queue is full would wait within
        // the driver, where the rank that it waits for could launch nothing.
        stream.Synchronize();
      }
      d.Unpack(stream, r.handle_, rows[s], in.at[s].residual, in.at[s].addend, in.at[s].y, weights[s], in.at[s].dw);
    });
  }
  for (std::thread& t : threads) t.join();
  world.Wait();
  // As if every window were ample: the rows of a window are the tokens themselves.
  EpOptions ample = options;
  ample.ragged_buffer_factor = -1;
  ample.mode = DispatchMode::kExpanded;
  const std::vector<EpExpectedPlan> plans = ExpectPlans(p, ample);
  std::vector<std::vector<X>> windows(static_cast<size_t>(n));
  std::vector<std::vector<W>> w_windows(static_cast<size_t>(n));
  for (int q = 0; q < n; ++q) ExpectWindow(p, plans, q, in.x, in.w, &windows[q], &w_windows[q]);
  Mismatches bad;
  for (int s = 0; s < n; ++s) {
    std::vector<X> want_y;
    std::vector<W> want_dw;
    ExpectCombine(p, ample, plans, s, windows, w_windows, in.residual[s], in.addend[s], &want_y, &want_dw);
    bad.Expect(Same(world.Get<X>(in.at[s].y), want_y), "y", s);
    bad.Expect(Same(world.Get<W>(in.at[s].dw), want_dw), "dw", s);
    bad.Expect(world.Get<int64_t>(most[s])[0] == plans[0].needed, "rows needed", s);
    bad.Expect(rounds[s] == rounds[0], "rounds", s);
  }
  CHECK(bad.text + world.Failures() == "");
  const int64_t R = options.window_rows(p.T[0]);
  CHECK(rounds[0] >= (plans[0].needed + R - 1) / std::max<int64_t>(R, 1));
  return rounds[0];
}

TEST_CASE("ep: in rounds, however small the window") {
  YM_NEEDS_GPU_HERE();
  for (int n : {2, 4}) {
    EpWorld world(&TestDevice(), n, size_t{8} << 20, size_t{8} << 20);
    for (EpRouting routing : {EpRouting::kRandom, EpRouting::kSkewed, EpRouting::kEmptyRank, EpRouting::kAllToOne}) {
      for (DispatchMode mode : kModes) {
        INFO(n << " ranks, routing " << static_cast<int>(routing));
        int64_t before = 0;
        for (double factor : {8.0, 1.0, 0.3, 0.1}) {
          const int64_t rounds =
              RunRounds<float>(world, MakeEpProblem(n, routing, 12, 3, 8, {13}, 5), mode, factor);
          CHECK(rounds >= before);
          before = rounds;
        }
        CHECK(before >= 13 * 3 / 4);
        RunRounds<BFloat16>(world, MakeEpProblem(n, routing, 12, 3, 7, {7, 0, 11, 2}, 6), mode, 0.4);
      }
    }
  }
}

TEST_CASE("ep: 512K rows in one window, beyond 2^31 elements") {
  YM_NEEDS_GPU_HERE();
  const int64_t T = 32768, K = 8, D = 7168, R = 2 * T * K;
  size_t free = 0, total = 0;
  static_cast<void>(cudaMemGetInfo(&free, &total));
  const size_t window = static_cast<size_t>(R * D) * 2;
  if (free < 2 * window + (size_t{6} << 30)) YM_SKIP("needs 22 GB of free GPU memory");
  EpWorld world(&TestDevice(), 2, window + (size_t{1300} << 20), size_t{64} << 20);
  const EpOptions options{.num_experts = 16, .top_k = K, .ep = 2};
  world.Make(options, 20);
  // Everybody's tokens to rank 0. The first elements of a row tell the rank, the token and that it is a row at all.
  std::vector<std::vector<uint16_t>> x(2);
  std::vector<Tensor> overflow, idx, x_TD, x_R, y;
  for (int s = 0; s < 2; ++s) {
    std::vector<int32_t> choices;
    for (int64_t t = 0; t < T; ++t) {
      for (int32_t k = 0; k < K; ++k) choices.push_back(k);
    }
    x[s].resize(static_cast<size_t>(T * D));
    uint64_t state = 77 + static_cast<uint64_t>(s);
    for (uint16_t& v : x[s]) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      v = static_cast<uint16_t>(0x3F00 | (state >> 40 & 0x80FF));  // +-0.5 to 2
    }
    idx.push_back(world.Make<int32_t>(s, {T, K}, choices));
    overflow.push_back(world.Make<int32_t>(s, {1}, {0}));
    x_TD.push_back(world.rank(s).saved.Allocate("x", DType::kBF16, {T, D}));
    world.Write(x_TD[s], x[s].data(), x[s].size() * 2);
    x_R.push_back(world.rank(s).saved.Allocate("x_R", DType::kBF16, {R, D}));
    y.push_back(world.rank(s).saved.Allocate("y", DType::kBF16, {T, D}));
  }
  world.Wait();
  for (int s = 0; s < 2; ++s) {
    EpWorld::Rank& r = world.rank(s);
    r.dispatcher->Plan(world.stream(s), idx[s], overflow[s], &r.handle_, r.saved, r.work);
    r.dispatcher->Dispatch(world.stream(s), r.handle_, x_TD[s], {}, x_R[s], {}, r.work);
    r.dispatcher->Combine(world.stream(s), r.handle_, x_R[s], {}, {}, y[s], {}, {}, r.work);
  }
  world.Wait();
  REQUIRE(world.Failures() == "");
  CHECK(world.Get<int64_t>(world.rank(0).handle_.offsets).back() == R);
  CHECK(world.Get<int64_t>(world.rank(1).handle_.offsets).back() == 0);
  // Row k * 2T + s * T + t of rank 0 is token t of rank s.
  int wrong = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const int64_t row = i < 300 ? (i * 1747 + i * i * 31) % R : R - 400 + i;
    const int64_t s = row / T % 2, t = row % T;
    const std::vector<BFloat16> got = world.Get<BFloat16>(x_R[0].Slice(row, row + 1));
    wrong += std::memcmp(got.data(), x[static_cast<size_t>(s)].data() + t * D, static_cast<size_t>(D) * 2) != 0;
  }
  CHECK(wrong == 0);
  for (int s = 0; s < 2; ++s) {  // eight times the same row: a change of exponent alone
    const std::vector<BFloat16> got = world.Get<BFloat16>(y[s]);
    wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) wrong += got[i].bits != x[s][i] + (3 << 7);
    CHECK(wrong == 0);
  }
}

}  // namespace
}  // namespace yardmaster::testing

#endif
