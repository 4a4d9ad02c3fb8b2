// Dispatch and combine over MPI against the gathered problem: LocalDispatcher to the bit, a plain
// sum in double, each other's adjoint, windows that are too small. Runs with 1, 2 and 4 ranks.
#include "src/comm/ep/mpi_dispatcher.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/comm/ep/local_dispatcher.h"
#include "src/device/arena.h"
#include "tests/catch.h"
#include "tests/comm/mpi_fixture.h"

namespace yardmaster {
namespace {

using testing::CpuStream;
using testing::SameBits;
using testing::TensorOf;
using testing::Value;
using testing::World;

enum class Routing { kRandom, kSkewed, kEmptyExpert, kEmptyRank, kAllToOne };

// The problem of all ranks: rank p's tokens are rows [begin[p], begin[p + 1]) of the gathered
// arrays.
struct Problem {
  int64_t n, E, K, D;
  std::vector<int64_t> T, begin;
  std::vector<int32_t> idx;  // [sum T, K]
  int64_t L() const { return E / n; }
  int64_t total() const { return begin.back(); }
  int64_t most() const { return *std::max_element(T.begin(), T.end()); }
};

Problem MakeProblem(Routing routing, int64_t E, int64_t K, int64_t D, std::vector<int64_t> T) {
  Problem p{World().size(), E, K, D, std::move(T), {0}, {}};
  p.T.resize(static_cast<size_t>(p.n), p.T.back());
  for (int64_t t : p.T) p.begin.push_back(p.begin.back() + t);
  for (int64_t t = 0; t < p.total(); ++t) {
    std::vector<int32_t> order(static_cast<size_t>(E));
    std::iota(order.begin(), order.end(), 0);
    // The K smallest keys are chosen.
    std::vector<double> key(static_cast<size_t>(E));
    for (int64_t e = 0; e < E; ++e) {
      key[e] = PhiloxUniform(11, static_cast<uint64_t>(t), static_cast<uint64_t>(e));
      if (routing == Routing::kSkewed && e >= E / 4) key[e] += 0.8;
      if (routing == Routing::kEmptyExpert && e == 1) key[e] += 2;
      if (routing == Routing::kEmptyRank && e / p.L() == p.n - 1) key[e] += 2;
      if (routing == Routing::kAllToOne) key[e] = static_cast<double>(e);
    }
    std::sort(order.begin(), order.end(), [&](int a, int b) { return key[a] < key[b]; });
    std::sort(order.begin(), order.begin() + K);
    p.idx.insert(p.idx.end(), order.begin(), order.begin() + K);
  }
  return p;
}

// Arenas as large as the dry run says, with NaN in what is released.
struct Memory {
  Arena saved, work;
  explicit Memory(size_t saved_bytes, size_t work_bytes)
      : saved("saved", &CpuStream().device()), work("work", &CpuStream().device()) {
    saved.set_poison(true);
    work.set_poison(true);
    saved.Commit(saved_bytes);
    work.Commit(work_bytes);
  }
};

MpiDispatcherOptions OptionsOf(const Problem& p, DispatchMode mode, double factor = -1) {
  return {p.E, p.K, World().size(), World().rank(), factor, mode, p.most()};
}

// One plan, dispatch and combine on the dry device: what the arenas need.
template <class T>
std::pair<size_t, size_t> DryRun(const Problem& p, const MpiDispatcherOptions& options) {
  const auto device = MakeDryDevice();
  const Stream stream(device.get());
  Arena saved("saved", device.get()), work("work", device.get());
  MpiDispatcher dispatcher(options, nullptr);
  RoutingHandle handle;
  const DType type = DTypeOf<T>::value;
  const int64_t n_T = p.T[World().rank()], R = dispatcher.window_rows(n_T);
  const Tensor x(nullptr, type, {n_T, p.D}), w(nullptr, type, {n_T, p.K}),
      rows(nullptr, type, {R, p.D}), w_R(nullptr, type, {R});
  dispatcher.Plan(stream, Tensor(nullptr, DType::kI32, {n_T, p.K}),
                  Tensor(nullptr, DType::kI32, {1}), &handle, saved, work);
  dispatcher.Dispatch(stream, handle, x, w, rows, w_R, work);
  dispatcher.Combine(stream, handle, rows, x, x, x, w_R, w, work);
  return {saved.high_water(), work.high_water()};
}

// An expert that multiplies and adds; different for each.
template <class T>
void Expert(int64_t e, T w, T* row, int64_t D) {
  for (int64_t d = 0; d < D; ++d)
    row[d] =
        w * (static_cast<T>(0.5 + 0.1 * static_cast<double>(e)) * row[d] + static_cast<T>(0.01));
}

template <class T>
struct Run {
  std::vector<T> x, w, residual, addend;  // this rank's part
  std::vector<T> x_R, w_R, y, dw;
  std::vector<int64_t> offsets;
  std::vector<int32_t> overflow = {0};
  int64_t needed = 0;
};

constexpr double kUntouched = -77;

template <class T>
std::vector<T> Values(uint64_t stream, int64_t begin, int64_t end) {
  std::vector<T> v(static_cast<size_t>(end - begin));
  for (int64_t i = begin; i < end; ++i) v[i - begin] = Value<T>(stream, i);
  return v;
}

// x, w -> experts -> y, and the weights' values sent back as their gradients.
template <class T>
Run<T> RunDistributed(const Problem& p, const MpiDispatcherOptions& options,
                      MpiCommunicator* comm) {
  Run<T> run;
  const int64_t me = World().rank(), begin = p.begin[me], end = p.begin[me + 1], n_T = end - begin;
  run.x = Values<T>(1, begin * p.D, end * p.D);
  run.w = Values<T>(2, begin * p.K, end * p.K);
  run.residual = Values<T>(3, begin * p.D, end * p.D);
  run.addend = Values<T>(4, begin * p.D, end * p.D);
  std::vector<int32_t> idx(p.idx.begin() + begin * p.K, p.idx.begin() + end * p.K);
  MpiDispatcher dispatcher(options, comm);
  CHECK(dispatcher.local_experts() == p.L());
  CHECK(dispatcher.expert_begin() == me * p.L());
  const int64_t R = dispatcher.window_rows(n_T);
  const auto [saved_bytes, work_bytes] = DryRun<T>(p, options);
  Memory memory(saved_bytes, work_bytes);
  run.x_R.assign(static_cast<size_t>(R * p.D), static_cast<T>(kUntouched));
  run.w_R.assign(static_cast<size_t>(R), static_cast<T>(kUntouched));
  RoutingHandle handle;
  dispatcher.Plan(CpuStream(), TensorOf(idx, {n_T, p.K}), TensorOf(run.overflow), &handle,
                  memory.saved, memory.work);
  dispatcher.Dispatch(CpuStream(), handle, TensorOf(run.x, {n_T, p.D}), TensorOf(run.w, {n_T, p.K}),
                      TensorOf(run.x_R, {R, p.D}), TensorOf(run.w_R), memory.work);
  const int64_t* offsets = handle.offsets.template as<int64_t>();
  run.offsets.assign(offsets, offsets + p.L() + 1);
  run.needed = handle.needed.template as<int64_t>()[0];
  std::vector<T> y_R = run.x_R;
  for (int64_t l = 0; l < p.L(); ++l) {
    for (int64_t r = run.offsets[l]; r < run.offsets[l + 1]; ++r)
      Expert(me * p.L() + l, run.w_R[r], &y_R[r * p.D], p.D);
  }
  run.y.assign(static_cast<size_t>(n_T * p.D), 0);
  run.dw.assign(static_cast<size_t>(n_T * p.K), 0);
  dispatcher.Combine(CpuStream(), handle, TensorOf(y_R, {R, p.D}),
                     TensorOf(run.residual, {n_T, p.D}), TensorOf(run.addend, {n_T, p.D}),
                     TensorOf(run.y, {n_T, p.D}), TensorOf(run.w_R), TensorOf(run.dw, {n_T, p.K}),
                     memory.work);
  return run;
}

// The same for all tokens on one rank.
template <class T>
Run<T> RunGathered(const Problem& p) {
  Run<T> run;
  const int64_t n_T = p.total(), R = n_T * p.K;
  run.x = Values<T>(1, 0, n_T * p.D);
  run.w = Values<T>(2, 0, n_T * p.K);
  run.residual = Values<T>(3, 0, n_T * p.D);
  run.addend = Values<T>(4, 0, n_T * p.D);
  std::vector<int32_t> idx = p.idx;
  LocalDispatcher dispatcher(p.E, p.K);
  Memory memory(1 << 22, 1 << 16);
  run.x_R.assign(static_cast<size_t>(R * p.D), 0);
  run.w_R.assign(static_cast<size_t>(R), 0);
  RoutingHandle handle;
  dispatcher.Plan(CpuStream(), TensorOf(idx, {n_T, p.K}), TensorOf(run.overflow), &handle,
                  memory.saved, memory.work);
  dispatcher.Dispatch(CpuStream(), handle, TensorOf(run.x, {n_T, p.D}), TensorOf(run.w, {n_T, p.K}),
                      TensorOf(run.x_R, {R, p.D}), TensorOf(run.w_R), memory.work);
  const int64_t* offsets = handle.offsets.template as<int64_t>();
  run.offsets.assign(offsets, offsets + p.E + 1);
  std::vector<T> y_R = run.x_R;
  for (int64_t e = 0; e < p.E; ++e) {
    for (int64_t r = run.offsets[e]; r < run.offsets[e + 1]; ++r)
      Expert(e, run.w_R[r], &y_R[r * p.D], p.D);
  }
  run.y.assign(static_cast<size_t>(n_T * p.D), 0);
  run.dw.assign(static_cast<size_t>(n_T * p.K), 0);
  dispatcher.Combine(CpuStream(), handle, TensorOf(y_R, {R, p.D}),
                     TensorOf(run.residual, {n_T, p.D}), TensorOf(run.addend, {n_T, p.D}),
                     TensorOf(run.y, {n_T, p.D}), TensorOf(run.w_R), TensorOf(run.dw, {n_T, p.K}),
                     memory.work);
  return run;
}

// y of this rank with partial sums by rank (deduplicated), or by choice; only pairs whose place is
// below `window`.
template <class T, class Sum>
std::vector<Sum> PlainSum(const Problem& p, bool by_rank, int64_t window) {
  std::vector<int64_t> place(
      p.idx.size());  // row of each pair of the gathered problem in its owner's window
  for (int64_t q = 0; q < p.n; ++q) {
    int64_t row = 0;
    for (int64_t e = q * p.L(); e < (q + 1) * p.L(); ++e) {
      for (size_t pair = 0; pair < p.idx.size(); ++pair) {
        if (p.idx[pair] == e) place[pair] = row++;
      }
    }
  }
  const int64_t me = World().rank();
  std::vector<Sum> y;
  for (int64_t t = p.begin[me]; t < p.begin[me + 1]; ++t) {
    for (int64_t d = 0; d < p.D; ++d) {
      Sum sum =
          static_cast<Sum>(Value<T>(3, t * p.D + d)) + static_cast<Sum>(Value<T>(4, t * p.D + d));
      for (int64_t k = 0; k < p.K;) {
        const int64_t q = p.idx[t * p.K + k] / p.L();
        Sum partial = 0;
        for (; k < p.K && p.idx[t * p.K + k] / p.L() == q; ++k) {
          if (place[t * p.K + k] >= window) continue;
          Sum row = static_cast<Sum>(Value<T>(1, t * p.D + d));
          Expert(p.idx[t * p.K + k], static_cast<Sum>(Value<T>(2, t * p.K + k)), &row, 1);
          (by_rank ? partial : sum) += row;
        }
        if (by_rank) sum += partial;
      }
      y.push_back(sum);
    }
  }
  return y;
}

template <class A, class B>
double LargestDifference(const std::vector<A>& a, const std::vector<B>& b) {
  YM_CHECK_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])) /
                     (1 + std::abs(static_cast<double>(b[i])));
    most = std::max(most, std::isnan(d) ? 1e30 : d);
  }
  return most;
}

constexpr int64_t kNoLimit = int64_t{1} << 60;

// Window rows [0, rows) hold what the gathered problem holds for this rank's experts; the rest is
// untouched.
template <class T>
void CheckWindow(const Problem& p, const Run<T>& run, const Run<T>& gathered) {
  const int64_t first = gathered.offsets[World().rank() * p.L()], filled = run.offsets.back();
  CHECK(SameBits(run.x_R.data(), gathered.x_R.data() + first * p.D, filled * p.D));
  CHECK(SameBits(run.w_R.data(), gathered.w_R.data() + first, filled));
  CHECK(std::all_of(run.x_R.begin() + filled * p.D, run.x_R.end(),
                    [](T v) { return v == static_cast<T>(kUntouched); }));
  CHECK(std::all_of(run.w_R.begin() + filled, run.w_R.end(),
                    [](T v) { return v == static_cast<T>(kUntouched); }));
}

template <class T>
void CheckAgainstGathered(const Problem& p, MpiCommunicator* comm) {
  const Run<T> gathered = RunGathered<T>(p);
  const int64_t me = World().rank(), n_T = p.T[me];
  const double tolerance =
      sizeof(T) == 4 ? 1e-4 : 1e-12;  // relative to 1 + |y|; terms are up to 1e7, cancelling
  for (DispatchMode mode : {DispatchMode::kExpanded, DispatchMode::kDeduplicated}) {
    const bool expanded = mode == DispatchMode::kExpanded;
    INFO((expanded ? "expanded" : "deduplicated") << ", " << DTypeName(DTypeOf<T>::value));
    const Run<T> run = RunDistributed<T>(p, OptionsOf(p, mode), comm);
    CHECK(run.overflow[0] == 0);
    for (int64_t l = 0; l <= p.L(); ++l) {
      CHECK(run.offsets[l] == gathered.offsets[me * p.L() + l] - gathered.offsets[me * p.L()]);
    }
    CheckWindow(p, run, gathered);
    CHECK(SameBits(run.dw.data(), run.w.data(), n_T * p.K));  // each weight came back to its pair
    if (expanded) {
      CHECK(SameBits(run.y.data(), gathered.y.data() + p.begin[me] * p.D, n_T * p.D));
    } else {
      CHECK(SameBits(run.y.data(), PlainSum<T, T>(p, true, kNoLimit).data(), n_T * p.D));
    }
    const std::vector<double> plain = PlainSum<T, double>(p, false, kNoLimit);
    double scale = 1;
    for (double v : plain) scale = std::max(scale, std::abs(v));
    double most = 0;
    for (size_t i = 0; i < plain.size(); ++i)
      most = std::max(most, std::abs(static_cast<double>(run.y[i]) - plain[i]));
    CHECK(most <= tolerance * scale);
  }
}

const std::vector<std::vector<int64_t>> kTokenCounts = {{13}, {1}, {0, 5}, {7, 0, 11, 2}, {0}};

TEST_CASE("the gathered problem, for every shape of routing") {
  const auto comm = World().WorldGroup();
  for (Routing routing : {Routing::kRandom, Routing::kSkewed, Routing::kEmptyExpert,
                          Routing::kEmptyRank, Routing::kAllToOne}) {
    for (const std::vector<int64_t>& tokens : kTokenCounts) {
      if (routing == Routing::kEmptyRank && World().size() == 1) continue;
      INFO("routing " << static_cast<int>(routing) << ", T of rank 0: " << tokens[0]);
      CheckAgainstGathered<float>(MakeProblem(routing, 12, 3, 5, tokens), comm.get());
      CheckAgainstGathered<double>(MakeProblem(routing, 12, 3, 5, tokens), comm.get());
    }
  }
}

TEST_CASE("top-1, one expert a rank, all experts chosen") {
  const auto comm = World().WorldGroup();
  const int64_t n = World().size();
  CheckAgainstGathered<float>(MakeProblem(Routing::kRandom, 8, 1, 3, {17}), comm.get());
  CheckAgainstGathered<float>(MakeProblem(Routing::kAllToOne, 8, 1, 3, {17}), comm.get());
  CheckAgainstGathered<float>(
      MakeProblem(Routing::kRandom, n, std::min<int64_t>(2, n), 300, {6, 3}), comm.get());
  CheckAgainstGathered<double>(MakeProblem(Routing::kRandom, 8, 8, 1, {4, 3}), comm.get());
}

TEST_CASE("dispatch and combine are each other's adjoint") {
  const auto comm = World().WorldGroup();
  for (DispatchMode mode : {DispatchMode::kExpanded, DispatchMode::kDeduplicated}) {
    for (Routing routing : {Routing::kRandom, Routing::kSkewed, Routing::kAllToOne}) {
      const Problem p = MakeProblem(routing, 8, 3, 6, {9, 4});
      const MpiDispatcherOptions options = OptionsOf(p, mode);
      MpiDispatcher dispatcher(options, comm.get());
      const int64_t me = World().rank(), begin = p.begin[me], n_T = p.T[me],
                    R = dispatcher.window_rows(n_T);
      const auto [saved_bytes, work_bytes] = DryRun<double>(p, options);
      Memory memory(saved_bytes, work_bytes);
      std::vector<int32_t> idx(p.idx.begin() + begin * p.K, p.idx.begin() + (begin + n_T) * p.K),
          overflow = {0};
      RoutingHandle handle;
      dispatcher.Plan(CpuStream(), TensorOf(idx, {n_T, p.K}), TensorOf(overflow), &handle,
                      memory.saved, memory.work);
      std::vector<double> x = Values<double>(1, begin * p.D, (begin + n_T) * p.D),
                          w = Values<double>(2, begin * p.K, (begin + n_T) * p.K);
      std::vector<double> y_R = Values<double>(20 + me, 0, R * p.D),
                          v_R = Values<double>(30 + me, 0, R);
      std::vector<double> x_R(y_R.size(), 0), w_R(v_R.size(), 0), y(x.size()), v(w.size());
      dispatcher.Dispatch(CpuStream(), handle, TensorOf(x, {n_T, p.D}), TensorOf(w, {n_T, p.K}),
                          TensorOf(x_R, {R, p.D}), TensorOf(w_R), memory.work);
      dispatcher.Combine(CpuStream(), handle, TensorOf(y_R, {R, p.D}), {}, {},
                         TensorOf(y, {n_T, p.D}), TensorOf(v_R), TensorOf(v, {n_T, p.K}),
                         memory.work);
      // <Dispatch(x), y_R>, <x, Combine(y_R)>, the same for weights, and the sizes of both.
      std::vector<double> dots(6, 0);
      const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
        return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
      };
      dots = {dot(x_R, y_R), dot(x, y), dot(w_R, v_R), dot(w, v), dot(x_R, x_R), dot(w_R, w_R)};
      comm->AllReduceSum(CpuStream(), TensorOf(dots));
      CHECK(dots[4] > 0);
      CHECK(std::abs(dots[0] - dots[1]) <= 1e-12 * dots[4]);
      CHECK(std::abs(dots[2] - dots[3]) <= 1e-12 * dots[5]);
      // Without weights, and y over the residual: the same rows.
      std::vector<double> x_R2(x_R.size(), 0), y2 = x;
      dispatcher.Dispatch(CpuStream(), handle, TensorOf(x, {n_T, p.D}), {},
                          TensorOf(x_R2, {R, p.D}), {}, memory.work);
      CHECK(SameBits(x_R.data(), x_R2.data(), R * p.D));
      dispatcher.Combine(CpuStream(), handle, TensorOf(y_R, {R, p.D}), TensorOf(y2, {n_T, p.D}), {},
                         TensorOf(y2, {n_T, p.D}), {}, {}, memory.work);
      std::vector<double> sum(x.size());
      for (size_t i = 0; i < x.size(); ++i) sum[i] = x[i] + y[i];
      CHECK(LargestDifference(y2, sum) < 1e-10);
    }
  }
}

TEST_CASE("window sizes") {
  MpiDispatcherOptions options{.num_experts = 256, .top_k = 8, .ep = 64, .ep_index = 3};
  CHECK(MpiDispatcher(options, nullptr).window_rows(4096) ==
        int64_t{64} * 4096 * 4);  // at most L = 4 of a token's 8
  options.ragged_buffer_factor = 1.5;
  CHECK(MpiDispatcher(options, nullptr).window_rows(4096) == 49152);
  CHECK(MpiDispatcher(options, nullptr).window_rows(1) == 12);
  options.ragged_buffer_factor = 0.3;
  CHECK(MpiDispatcher(options, nullptr).window_rows(1) == 3);  // rounded up
  options.ragged_buffer_factor = 1e9;
  CHECK(MpiDispatcher(options, nullptr).window_rows(4096) == int64_t{64} * 4096 * 4);
  options.least_tokens = 2;
  CHECK(MpiDispatcher(options, nullptr).window_rows(0) == 2 * 64 * 4);
  options.ep = 60;
  CHECK_THROWS_AS(MpiDispatcher(options, nullptr), Error);
}

TEST_CASE("a window that is too small: a flag on all ranks, nothing written beyond it") {
  const auto comm = World().WorldGroup();
  if (World().size() == 1) YM_SKIP("one rank's window holds every pair from a factor of 1 on");
  for (Routing routing : {Routing::kSkewed, Routing::kAllToOne, Routing::kRandom}) {
    for (DispatchMode mode : {DispatchMode::kExpanded, DispatchMode::kDeduplicated}) {
      for (double factor : {0.05, 0.5, 0.9}) {
        const Problem p = MakeProblem(routing, 8, 2, 3, {11});
        const MpiDispatcherOptions options = OptionsOf(p, mode, factor);
        const Run<double> gathered = RunGathered<double>(p);
        int64_t needed = 0;
        for (int64_t q = 0; q < p.n; ++q) {
          needed =
              std::max(needed, gathered.offsets[(q + 1) * p.L()] - gathered.offsets[q * p.L()]);
        }
        const Run<double> run = RunDistributed<double>(p, options, comm.get());
        const int64_t me = World().rank(), R = MpiDispatcher(options, nullptr).window_rows(11);
        INFO("routing " << static_cast<int>(routing) << ", factor " << factor << ": " << needed
                        << " rows in windows of " << R);
        REQUIRE(needed > R);
        CHECK(run.overflow[0] == 1);
        CHECK(run.needed == needed);
        for (int64_t l = 0; l <= p.L(); ++l) {
          CHECK(run.offsets[l] ==
                std::min(R, gathered.offsets[me * p.L() + l] - gathered.offsets[me * p.L()]));
        }
        CheckWindow(p, run, gathered);
        // What did not fit counts as zero.
        CHECK(LargestDifference(run.y, PlainSum<double, double>(
                                           p, mode == DispatchMode::kDeduplicated, R)) < 1e-12);
      }
    }
  }
}

TEST_CASE("the overflow flag is sticky, and a large enough window sets none") {
  const auto comm = World().WorldGroup();
  const Problem p = MakeProblem(Routing::kRandom, 8, 2, 3, {11});
  MpiDispatcherOptions options = OptionsOf(p, DispatchMode::kExpanded);
  const int64_t me = World().rank(), begin = p.begin[me];
  std::vector<int32_t> idx(p.idx.begin() + begin * 2, p.idx.begin() + (begin + 11) * 2),
      overflow = {0};
  Memory memory(1 << 20, 1 << 16);
  RoutingHandle handle;
  const auto plan = [&](double factor) {
    options.ragged_buffer_factor = factor;
    MpiDispatcher dispatcher(options, comm.get());
    dispatcher.Plan(CpuStream(), TensorOf(idx, {11, 2}), TensorOf(overflow), &handle, memory.saved,
                    memory.work);
    return handle.needed.as<int64_t>()[0];
  };
  const int64_t needed = plan(-1);
  CHECK(overflow[0] == 0);
  // The factor that `needed` tells is enough; a row less is not.
  plan(static_cast<double>(needed) / 22);
  CHECK(overflow[0] == 0);
  plan((static_cast<double>(needed) - 1.5) / 22);  // rounded up
  CHECK(overflow[0] == 1);
  plan(-1);
  CHECK(overflow[0] == 1);
}

// What RunDistributed does, in rounds. Returns how many there were.
template <class T>
int64_t CheckRounds(const Problem& p, DispatchMode mode, double factor, MpiCommunicator* comm) {
  const int64_t me = World().rank(), begin = p.begin[me], n_T = p.T[me], M = n_T * p.K;
  MpiDispatcher dispatcher(OptionsOf(p, mode, factor), comm);
  RoundDispatcher& rounds = *dispatcher.rounds();
  const int64_t R = dispatcher.window_rows(n_T);
  std::vector<int64_t> most = {0};
  dispatcher.set_rows_needed(TensorOf(most));
  std::vector<int32_t> idx(p.idx.begin() + begin * p.K, p.idx.begin() + (begin + n_T) * p.K);
  std::vector<T> x = Values<T>(1, begin * p.D, (begin + n_T) * p.D),
                 w = Values<T>(2, begin * p.K, (begin + n_T) * p.K),
                 residual = Values<T>(3, begin * p.D, (begin + n_T) * p.D),
                 addend = Values<T>(4, begin * p.D, (begin + n_T) * p.D);
  std::vector<T> rows(static_cast<size_t>(M * p.D)), weights(static_cast<size_t>(M));
  std::vector<T> window(static_cast<size_t>(R * p.D)), w_R(static_cast<size_t>(R)), y(x.size()),
      dw(w.size());
  Memory memory(1 << 20, 1 << 20);
  RoutingHandle handle;
  rounds.PlanRounds(CpuStream(), TensorOf(idx, {n_T, p.K}), &handle, memory.saved, memory.work);
  rounds.Pack(CpuStream(), handle, TensorOf(x, {n_T, p.D}), TensorOf(w, {n_T, p.K}),
              TensorOf(rows, {M, p.D}), TensorOf(weights));
  for (int64_t r = 0; r < rounds.NumRounds(handle); ++r) {
    std::fill(window.begin(), window.end(), static_cast<T>(kUntouched));
    rounds.Send(CpuStream(), handle, r, TensorOf(rows, {M, p.D}), TensorOf(window, {R, p.D}));
    rounds.Send(CpuStream(), handle, r, TensorOf(weights), TensorOf(w_R));
    const int64_t* offsets = handle.offsets.as<int64_t>();
    for (int64_t l = 0; l < p.L(); ++l) {
      for (int64_t i = offsets[l]; i < offsets[l + 1]; ++i)
        Expert(me * p.L() + l, w_R[i], &window[i * p.D], p.D);
    }
    CHECK(std::all_of(window.begin() + offsets[p.L()] * p.D, window.end(),
                      [](T v) { return v == static_cast<T>(kUntouched); }));
    rounds.Return(CpuStream(), handle, r, TensorOf(window, {R, p.D}), TensorOf(rows, {M, p.D}));
    rounds.Return(CpuStream(), handle, r, TensorOf(w_R), TensorOf(weights));
  }
  rounds.Unpack(CpuStream(), handle, TensorOf(rows, {M, p.D}), TensorOf(residual, {n_T, p.D}),
                TensorOf(addend, {n_T, p.D}), TensorOf(y, {n_T, p.D}), TensorOf(weights),
                TensorOf(dw, {n_T, p.K}));
  const Run<T> gathered = RunGathered<T>(p);
  CHECK(SameBits(y.data(), gathered.y.data() + begin * p.D, n_T * p.D));
  CHECK(SameBits(dw.data(), w.data(), n_T * p.K));
  int64_t needed = 0;
  for (int64_t q = 0; q < p.n; ++q)
    needed = std::max(needed, gathered.offsets[(q + 1) * p.L()] - gathered.offsets[q * p.L()]);
  CHECK(most[0] == needed);
  CHECK(rounds.NumRounds(handle) >= (needed + R - 1) / std::max<int64_t>(R, 1));
  return rounds.NumRounds(handle);
}

TEST_CASE("in rounds: the gathered problem to the bit, however small the window") {
  const auto comm = World().WorldGroup();
  for (Routing routing : {Routing::kRandom, Routing::kSkewed, Routing::kEmptyExpert,
                          Routing::kEmptyRank, Routing::kAllToOne}) {
    if (routing == Routing::kEmptyRank && World().size() == 1) continue;
    for (DispatchMode mode : {DispatchMode::kExpanded, DispatchMode::kDeduplicated}) {
      const Problem p = MakeProblem(routing, 12, 3, 5, {13});
      INFO("routing " << static_cast<int>(routing));
      int64_t before = 0;
      for (double factor : {8.0, 1.0, 0.5, 0.03}) {
        const int64_t rounds = CheckRounds<float>(p, mode, factor, comm.get());
        CHECK(rounds >= before);
        before = rounds;
      }
      CHECK(before >= 13 * 3 / 2);  // two rows at a time
      CheckRounds<double>(MakeProblem(routing, 12, 3, 5, {7, 0, 11, 2}), mode, 0.4, comm.get());
    }
  }
  MpiDispatcher ample(OptionsOf(MakeProblem(Routing::kRandom, 12, 3, 5, {13}), DispatchMode::kExpanded),
                      comm.get());
  CHECK(ample.rounds() == nullptr);
}

TEST_CASE("an expert that does not exist is a bug that names the rank") {
  const auto comm = World().WorldGroup();
  for (DispatchMode mode : {DispatchMode::kExpanded, DispatchMode::kDeduplicated}) {
    MpiDispatcherOptions options{.num_experts = 4,
                                 .top_k = 1,
                                 .ep = World().size(),
                                 .ep_index = World().rank(),
                                 .mode = mode};
    MpiDispatcher dispatcher(options, comm.get());
    Memory memory(1 << 20, 1 << 16);
    std::vector<int32_t> idx = {4, 1},
                         overflow = {
                             0};  // on all ranks: each throws before or after the same exchange
    RoutingHandle handle;
    CHECK_THROWS_AS(dispatcher.Plan(CpuStream(), TensorOf(idx, {2, 1}), TensorOf(overflow), &handle,
                                    memory.saved, memory.work),
                    InternalError);
  }
}

}  // namespace
}  // namespace yardmaster
