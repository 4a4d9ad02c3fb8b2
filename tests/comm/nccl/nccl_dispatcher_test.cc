// Dispatch and combine over NCCL against MpiDispatcher's expanded mode on the same routing, to the bit:
// windows, weights, sums, what is needed, rounds. Every rank has as many tokens.
#include "src/comm/ep/cuda/nccl_dispatcher.h"

#include <algorithm>
#include <numeric>

#include "src/comm/ep/mpi_dispatcher.h"
#include "src/device/arena.h"
#include "tests/comm/nccl/gpu_ranks.h"

namespace yardmaster::testing {
namespace {

enum class Routing { kRandom, kSkewed, kEmptyExpert, kEmptyRank, kAllToOne, kSomeDropped };

struct Problem {
  int64_t E, K, D, T;
  std::vector<int32_t> idx;  // of this rank: [T, K]
};

Problem MakeProblem(Routing routing, int64_t E, int64_t K, int64_t D, int64_t T, uint64_t seed = 0) {
  Problem p{E, K, D, T, {}};
  const int64_t L = E / World().size(), first = World().rank() * T;
  for (int64_t t = first; t < first + T; ++t) {
    std::vector<int32_t> order(static_cast<size_t>(E));
    std::iota(order.begin(), order.end(), 0);
    std::vector<double> key(static_cast<size_t>(E));  // the K smallest are chosen
    for (int64_t e = 0; e < E; ++e) {
      key[e] = PhiloxUniform(11 + seed, static_cast<uint64_t>(t), static_cast<uint64_t>(e));
      if (routing == Routing::kSkewed && e >= E / 4) key[e] += 0.8;
      if (routing == Routing::kEmptyExpert && e == 1) key[e] += 2;
      if (routing == Routing::kEmptyRank && e / L == World().size() - 1) key[e] += 2;
      if (routing == Routing::kAllToOne) key[e] = static_cast<double>(e);
    }
    std::sort(order.begin(), order.end(), [&](int a, int b) { return key[a] < key[b]; });
    std::sort(order.begin(), order.begin() + K);
    p.idx.insert(p.idx.end(), order.begin(), order.begin() + K);
    if (routing == Routing::kSomeDropped && t % 3 == 0) p.idx.back() = -1;  // over capacity
  }
  return p;
}

template <class T>
std::vector<T> Values(uint64_t stream, int64_t n) {
  std::vector<T> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[i] = Value<T>(stream + 100 * static_cast<uint64_t>(World().rank()), i);
  return v;
}

template <class T>
struct Result {
  std::vector<T> x_R, w_R, y, dw;
  std::vector<int64_t> offsets;
  int64_t needed = 0;
  int32_t overflow = 0;
};

constexpr double kUntouched = -77;

// An expert that multiplies and adds; different for each.
template <class T>
void Experts(int64_t first, const std::vector<int64_t>& offsets, const std::vector<T>& w_R, int64_t D,
             std::vector<T>* x_R) {
  for (size_t l = 0; l + 1 < offsets.size(); ++l) {
    for (int64_t i = offsets[l] * D; i < offsets[l + 1] * D; ++i) {
      const double factor = 0.5 + 0.1 * static_cast<double>(first + static_cast<int64_t>(l));
      (*x_R)[i] = w_R[i / D] * (static_cast<T>(factor) * (*x_R)[i] + static_cast<T>(0.01));
    }
  }
}

template <class T>
class Case {
 public:
  Case(const Problem& p, double factor, bool exact, NcclCommunicator* comm)
      : p_(p),
        comm_(comm),
        options_{p.E, p.K, World().size(), World().rank(), factor},
        exact_(exact),
        dispatcher_(options_, exact, comm),
        R_(dispatcher_.window_rows(p.T)),
        x_(Values<T>(1, p.T * p.D)),
        w_(Values<T>(2, p.T * p.K)),
        residual_(Values<T>(3, p.T * p.D)),
        addend_(Values<T>(4, p.T * p.D)) {}

  Result<T> Reference(MpiCommunicator* comm) const {
    MpiDispatcher reference(options_, comm);
    YM_CHECK_EQ(reference.window_rows(p_.T), R_);
    Arena saved("saved", &CpuStream().device()), work("work", &CpuStream().device());
    saved.Commit(size_t{1} << 24);
    work.Commit(size_t{1} << 24);
    Result<T> out;
    std::vector<int32_t> idx = p_.idx, overflow = {0};
    std::vector<T> x = x_, w = w_, residual = residual_, addend = addend_;
    out.x_R.assign(static_cast<size_t>(R_ * p_.D), static_cast<T>(kUntouched));
    out.w_R.assign(static_cast<size_t>(R_), static_cast<T>(kUntouched));
    RoutingHandle handle;
    reference.Plan(CpuStream(), TensorOf(idx, {p_.T, p_.K}), TensorOf(overflow), &handle, saved, work);
    reference.Dispatch(CpuStream(), handle, TensorOf(x, {p_.T, p_.D}), TensorOf(w, {p_.T, p_.K}),
                       TensorOf(out.x_R, {R_, p_.D}), TensorOf(out.w_R), work);
    const int64_t* offsets = handle.offsets.template as<int64_t>();
    out.offsets.assign(offsets, offsets + dispatcher_.local_experts() + 1);
    out.needed = handle.needed.template as<int64_t>()[0];
    out.overflow = overflow[0];
    std::vector<T> y_R = out.x_R;
    Experts(dispatcher_.expert_begin(), out.offsets, out.w_R, p_.D, &y_R);
    out.y.resize(static_cast<size_t>(p_.T * p_.D));
    out.dw.resize(static_cast<size_t>(p_.T * p_.K));
    reference.Combine(CpuStream(), handle, TensorOf(y_R, {R_, p_.D}), TensorOf(residual, {p_.T, p_.D}),
                      TensorOf(addend, {p_.T, p_.D}), TensorOf(out.y, {p_.T, p_.D}), TensorOf(out.w_R),
                      TensorOf(out.dw, {p_.T, p_.K}), work);
    return out;
  }

  Result<T> OnGpus() {
    const Stream& stream = Ranks().stream;
    MakeArenas(false);
    Result<T> out;
    const OnGpu<int32_t> idx(p_.idx, {p_.T, p_.K}), overflow({0});
    const OnGpu<T> x(x_, {p_.T, p_.D}), w(w_, {p_.T, p_.K}), residual(residual_, {p_.T, p_.D}),
        addend(addend_, {p_.T, p_.D});
    const OnGpu<T> x_R(Untouched(R_ * p_.D), {R_, p_.D}), w_R(Untouched(R_), {R_});
    RoutingHandle handle;
    dispatcher_.Plan(stream, idx.tensor(), overflow.tensor(), &handle, *saved_, *work_);
    dispatcher_.Dispatch(stream, handle, x.tensor(), w.tensor(), x_R.tensor(), w_R.tensor(), *work_);
    out.offsets = Host<int64_t>(handle.offsets);
    out.needed = Host<int64_t>(handle.needed)[0];
    out.overflow = overflow.Values()[0];
    out.x_R = x_R.Values();
    out.w_R = w_R.Values();
    std::vector<T> values = out.x_R;
    Experts(dispatcher_.expert_begin(), out.offsets, out.w_R, p_.D, &values);
    const OnGpu<T> y_R(values, {R_, p_.D}), y(Untouched(p_.T * p_.D), {p_.T, p_.D}),
        dw(Untouched(p_.T * p_.K), {p_.T, p_.K});
    dispatcher_.Combine(stream, handle, y_R.tensor(), residual.tensor(), addend.tensor(), y.tensor(),
                        w_R.tensor(), dw.tensor(), *work_);
    out.y = y.Values();
    out.dw = dw.Values();
    return out;
  }

  // In rounds; x_R and offsets stay empty. `num_rounds`: how many there were.
  Result<T> InRounds(int64_t* num_rounds) {
    const Stream& stream = Ranks().stream;
    MakeArenas(true);
    RoundDispatcher& rounds = *dispatcher_.rounds();
    const int64_t M = p_.T * p_.K;
    Result<T> out;
    const OnGpu<int64_t> most({0});
    dispatcher_.set_rows_needed(most.tensor());
    const OnGpu<int32_t> idx(p_.idx, {p_.T, p_.K});
    const OnGpu<T> x(x_, {p_.T, p_.D}), w(w_, {p_.T, p_.K}), residual(residual_, {p_.T, p_.D}),
        addend(addend_, {p_.T, p_.D});
    const OnGpu<T> rows(Untouched(M * p_.D), {M, p_.D}), weights(Untouched(M), {M}), w_R(Untouched(R_), {R_}),
        y(Untouched(p_.T * p_.D), {p_.T, p_.D}), dw(Untouched(M), {p_.T, p_.K});
    RoutingHandle handle;
    rounds.PlanRounds(stream, idx.tensor(), &handle, *saved_, *work_);
    rounds.Pack(stream, handle, x.tensor(), w.tensor(), rows.tensor(), weights.tensor());
    *num_rounds = rounds.NumRounds(handle);
    for (int64_t r = 0; r < *num_rounds; ++r) {
      const OnGpu<T> window(Untouched(R_ * p_.D), {R_, p_.D});
      rounds.Send(stream, handle, r, rows.tensor(), window.tensor());
      rounds.Send(stream, handle, r, weights.tensor(), w_R.tensor());
      std::vector<T> values = window.Values();
      Experts(dispatcher_.expert_begin(), Host<int64_t>(handle.offsets), w_R.Values(), p_.D, &values);
      Ranks().device->CopyFromHost(window.tensor().data(), values.data(), values.size() * sizeof(T));
      rounds.Return(stream, handle, r, window.tensor(), rows.tensor());
      rounds.Return(stream, handle, r, w_R.tensor(), weights.tensor());
      stream.Synchronize();
    }
    rounds.Unpack(stream, handle, rows.tensor(), residual.tensor(), addend.tensor(), y.tensor(),
                  weights.tensor(), dw.tensor());
    out.y = y.Values();
    out.dw = dw.Values();
    out.needed = most.Values()[0];
    return out;
  }

  int64_t R() const { return R_; }
  const std::vector<T>& w() const { return w_; }
  const NcclDispatcher& dispatcher() const { return dispatcher_; }

 private:
  static std::vector<T> Untouched(int64_t n) {
    return std::vector<T>(static_cast<size_t>(n), static_cast<T>(kUntouched));
  }
  template <class V>
  static std::vector<V> Host(const Tensor& t) {
    std::vector<V> out(static_cast<size_t>(t.elements()));
    Ranks().device->CopyToHost(out.data(), t.data(), out.size() * sizeof(V));
    return out;
  }
  // As large as the same calls on the dry device say.
  void MakeArenas(bool in_rounds) {
    const auto dry = MakeDryDevice(DeviceKind::kCuda);
    const Stream stream(dry.get());
    Arena saved("saved", dry.get()), work("work", dry.get());
    NcclDispatcher dispatcher(options_, exact_, nullptr);
    const auto tensor = [](DType type, const Shape& shape) { return Tensor(nullptr, type, shape); };
    const DType type = DTypeOf<T>::value;
    const Tensor idx = tensor(DType::kI32, {p_.T, p_.K}), x = tensor(type, {p_.T, p_.D}),
                 w = tensor(type, {p_.T, p_.K});
    RoutingHandle handle;
    if (in_rounds) {
      dispatcher.rounds()->PlanRounds(stream, idx, &handle, saved, work);
    } else {
      const Tensor x_R = tensor(type, {R_, p_.D}), w_R = tensor(type, {R_});
      dispatcher.Plan(stream, idx, tensor(DType::kI32, {1}), &handle, saved, work);
      dispatcher.Dispatch(stream, handle, x, w, x_R, w_R, work);
      dispatcher.Combine(stream, handle, x_R, x, x, x, w_R, w, work);
    }
    saved_ = std::make_unique<Arena>("saved", Ranks().device.get());
    work_ = std::make_unique<Arena>("work", Ranks().device.get());
    saved_->Commit(saved.high_water());
    work_->Commit(work.high_water());
  }

  Problem p_;
  NcclCommunicator* comm_;
  EpOptions options_;
  bool exact_;
  NcclDispatcher dispatcher_;
  int64_t R_;
  std::vector<T> x_, w_, residual_, addend_;
  std::unique_ptr<Arena> saved_, work_;
};

struct Groups {
  std::unique_ptr<MpiCommunicator> mpi = World().WorldGroup();
  std::unique_ptr<Communicator> nccl = Ranks().nccl.Group(AllRanks(), "ep");
  NcclCommunicator* comm() { return static_cast<NcclCommunicator*>(nccl.get()); }
};

template <class T>
void CheckSame(const Problem& p, double factor, bool exact, Groups& groups) {
  INFO(DTypeName(DTypeOf<T>::value) << (exact ? ", exact counts" : ", segments") << ", factor " << factor);
  Case<T> c(p, factor, exact, groups.comm());
  const Result<T> expected = c.Reference(groups.mpi.get()), got = c.OnGpus();
  CHECK(got.overflow == expected.overflow);
  REQUIRE(expected.overflow == 0);
  CHECK(got.offsets == expected.offsets);
  if (exact) CHECK(got.needed == expected.needed);
  CHECK(got.needed >= expected.needed);
  CHECK(
      SameBits(got.x_R.data(), expected.x_R.data(), c.R() * p.D));  // untouched beyond the window's rows, too
  CHECK(SameBits(got.w_R.data(), expected.w_R.data(), c.R()));
  CHECK(SameBits(got.y.data(), expected.y.data(), p.T * p.D));
  CHECK(SameBits(got.dw.data(), expected.dw.data(), p.T * p.K));
}

TEST_CASE("nccl dispatch: the bits of the cpu device, for every shape of routing") {
  YM_NEEDS_GPU_RANKS();
  Groups groups;
  for (Routing routing : {Routing::kRandom, Routing::kSkewed, Routing::kEmptyExpert, Routing::kEmptyRank,
                          Routing::kAllToOne, Routing::kSomeDropped}) {
    if (routing == Routing::kEmptyRank && World().size() == 1) continue;
    INFO("routing " << static_cast<int>(routing));
    for (int64_t T : {1, 13, 300}) {
      const Problem p = MakeProblem(routing, 12, 3, 20, T);
      CheckSame<float>(p, -1, false, groups);
      CheckSame<float>(p, -1, true, groups);
      if (T == 13) CheckSame<double>(p, -1, false, groups);
    }
  }
  CheckSame<float>(MakeProblem(Routing::kRandom, 8, 1, 3, 17), -1, false, groups);
  CheckSame<float>(MakeProblem(Routing::kRandom, 256, 8, 512, 256), 2, true, groups);
  CheckSame<float>(MakeProblem(Routing::kRandom, 256, 8, 512, 256), 2, false, groups);
}

TEST_CASE("nccl dispatch: a window or a segment that is too small sets the flag on all ranks") {
  YM_NEEDS_GPU_RANKS();
  if (World().size() == 1) YM_SKIP("one rank's window holds every pair from a factor of 1 on");
  Groups groups;
  for (bool exact : {false, true}) {
    for (double factor : {0.3, 0.9}) {
      INFO((exact ? "exact counts" : "segments") << ", factor " << factor);
      const Problem p = MakeProblem(Routing::kAllToOne, 8, 2, 6, 11);
      Case<double> c(p, factor, exact, groups.comm());
      const Result<double> expected = c.Reference(groups.mpi.get()), got = c.OnGpus();
      CHECK(expected.overflow == 1);
      CHECK(got.overflow == 1);
      CHECK(got.offsets == expected.offsets);
      CHECK(got.needed ==
            expected.needed);  // every rank sends as much to rank 0: segments need no more than the window
    }
  }
  // A segment can be too small where the window is not: rank 0 alone sends all its rows to rank 0.
  Problem p = MakeProblem(Routing::kAllToOne, 8, 2, 6, 16);
  if (World().rank() != 0) {
    for (size_t i = 0; i < p.idx.size(); ++i)
      p.idx[i] = static_cast<int32_t>(World().rank() * (8 / World().size()) + static_cast<int64_t>(i % 2));
  }
  Case<double> c(p, 1.2, false, groups.comm());
  if (8 / World().size() >= 2) {
    CHECK(c.Reference(groups.mpi.get()).overflow == 0);
    const Result<double> got = c.OnGpus();
    CHECK(got.overflow == 1);
    CHECK(got.needed == 16 * 2 * World().size());
    // The factor that `needed` tells is enough.
    Case<double> ample(p, static_cast<double>(got.needed) / 32, false, groups.comm());
    CHECK(ample.OnGpus().overflow == 0);
  }
}

TEST_CASE("nccl dispatch in rounds: the bits of an ample window, however small the window") {
  YM_NEEDS_GPU_RANKS();
  Groups groups;
  for (Routing routing : {Routing::kRandom, Routing::kSkewed, Routing::kEmptyRank, Routing::kAllToOne}) {
    if (routing == Routing::kEmptyRank && World().size() == 1) continue;
    const Problem p = MakeProblem(routing, 12, 3, 5, 13);
    const Result<float> expected = Case<float>(p, -1, false, groups.comm()).Reference(groups.mpi.get());
    for (double factor : {1.0, 0.2}) {
      INFO("routing " << static_cast<int>(routing) << ", factor " << factor);
      Case<float> c(p, factor, false, groups.comm());
      int64_t rounds = 0;
      const Result<float> got = c.InRounds(&rounds);
      CHECK(SameBits(got.y.data(), expected.y.data(), p.T * p.D));
      CHECK(SameBits(got.dw.data(), c.w().data(), p.T * p.K));
      CHECK(got.needed >= expected.needed);
      CHECK(rounds >= (expected.needed + c.R() - 1) / c.R());
    }
  }
}

TEST_CASE("nccl dispatch: sizes of windows and segments") {
  EpOptions options{.num_experts = 256, .top_k = 8, .ep = 64, .ep_index = 3};
  CHECK(NcclDispatcher(options, false, nullptr).segment_rows(4096) ==
        4096 * 4);  // at most L = 4 of a token's 8
  CHECK(NcclDispatcher(options, false, nullptr).window_rows(4096) == int64_t{64} * 4096 * 4);
  options.ragged_buffer_factor = 1.5;
  CHECK(NcclDispatcher(options, false, nullptr).segment_rows(4096) == 768);
  CHECK(NcclDispatcher(options, false, nullptr).segment_rows(1) == 1);  // rounded up
  options.mode = DispatchMode::kDeduplicated;
  CHECK_THROWS_AS(NcclDispatcher(options, false, nullptr), Error);
  options.mode = DispatchMode::kExpanded;
  options.ep = 60;
  CHECK_THROWS_AS(NcclDispatcher(options, false, nullptr), Error);
}

}  // namespace
}  // namespace yardmaster::testing
