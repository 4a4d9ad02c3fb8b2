// Collectives over NCCL against serial loops, to the bit: what tests/comm/collectives_test.cc asks of MPI.
// Runs with 2 and 4 ranks, which share a GPU where there are not enough.
#include "src/comm/nccl/nccl_communicator.h"

#include <cmath>
#include <limits>

#include "src/comm/nccl/copy_collectives.h"
#include "tests/comm/nccl/gpu_ranks.h"

namespace yardmaster::testing {
namespace {

template <class T>
std::vector<T> ValuesOf(int rank, int64_t n) {
  std::vector<T> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[i] = Value<T>(static_cast<uint64_t>(rank), i);
  return v;
}

template <class T>
std::vector<T> SerialSum(const std::vector<int64_t>& ranks, int64_t n) {
  std::vector<T> sum = ValuesOf<T>(static_cast<int>(ranks[0]), n);
  for (size_t r = 1; r < ranks.size(); ++r) {
    const std::vector<T> v = ValuesOf<T>(static_cast<int>(ranks[r]), n);
    for (int64_t i = 0; i < n; ++i) sum[i] += v[i];
  }
  return sum;
}

// Uneven, with empty ranges; every rank of the group knows them.
std::vector<int64_t> UnevenBounds(int64_t n, int size, uint64_t seed) {
  std::vector<int64_t> bounds(static_cast<size_t>(size) + 1, n);
  bounds[0] = 0;
  for (int r = 1; r < size; ++r) {
    const double u = PhiloxUniform(5, seed, static_cast<uint64_t>(r));
    bounds[r] = u < 0.3 ? bounds[r - 1]
                        : bounds[r - 1] + static_cast<int64_t>(u * static_cast<double>(n - bounds[r - 1]));
  }
  return bounds;
}

template <class T>
void CheckSums(Communicator& comm, const std::vector<int64_t>& ranks, int64_t n, uint64_t seeds = 3) {
  INFO("n = " << n << ", " << DTypeName(DTypeOf<T>::value) << ", group " << comm.name());
  const std::vector<T> expected = SerialSum<T>(ranks, n), mine = ValuesOf<T>(World().rank(), n);
  {
    const OnGpu<T> x(mine);
    comm.AllReduceSum(Ranks().stream, x.tensor());
    CHECK(SameBits(x.Values().data(), expected.data(), n));
  }
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const std::vector<int64_t> bounds = UnevenBounds(n, comm.size(), seed);
    const OnGpu<T> x(mine);
    comm.ReduceScatterSum(Ranks().stream, x.tensor(), bounds);
    std::vector<T> got = x.Values();
    const int64_t begin = bounds[comm.rank()], end = bounds[comm.rank() + 1];
    CHECK(SameBits(got.data() + begin, expected.data() + begin, end - begin));
    // Only the own range is defined: the gather must not read more.
    for (int64_t i = 0; i < n; ++i) {
      if (i < begin || i >= end) got[i] = static_cast<T>(-12345);
    }
    const OnGpu<T> gathered(got);
    comm.AllGather(Ranks().stream, gathered.tensor(), bounds);
    CHECK(SameBits(gathered.Values().data(), expected.data(), n));
  }
}

TEST_CASE("nccl: sums are added in rank order, of any size and type") {
  YM_NEEDS_GPU_RANKS();
  const auto comm = Ranks().nccl.Group(AllRanks(), "world");
  constexpr int64_t kCopied = 20011;
  static_assert(kCopied * int64_t{sizeof(float)} >= kLeastCopiedBytes);
  INFO(Ranks().nccl.description());
  if (comm->size() > 1) CHECK(Ranks().nccl.description().ends_with(" and copy engines"));
  for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{127}, int64_t{5003}, kCopied}) {
    CheckSums<float>(*comm, AllRanks(), n);
    CheckSums<double>(*comm, AllRanks(), n);
    CheckSums<int32_t>(*comm, AllRanks(), n);
    CheckSums<int64_t>(*comm, AllRanks(), n);
  }
}

// Of this rank's own range, by `comm`, which must leave the sums' bits in it.
template <class T>
std::vector<double> SquaresBy(Communicator& comm, const std::vector<T>& expected,
                              const std::vector<int64_t>& bounds) {
  const int64_t begin = bounds[comm.rank()], n = bounds[comm.rank() + 1] - begin;
  const int64_t runs = (n + kSquaresRun - 1) / kSquaresRun;
  const OnGpu<T> x(ValuesOf<T>(World().rank(), static_cast<int64_t>(expected.size())));
  const OnGpu<double> squares(std::vector<double>(static_cast<size_t>(runs), -1));
  comm.ReduceScatterSumAndSquares(Ranks().stream, x.tensor(), bounds, squares.tensor());
  CHECK(SameBits(x.Values().data() + begin, expected.data() + begin, n));
  return squares.Values();
}

template <class T>
void CheckSquares(Communicator& comm, Communicator& without_copies, int64_t n) {
  INFO("n = " << n << ", " << DTypeName(DTypeOf<T>::value));
  REQUIRE(comm.sums_squares(DTypeOf<T>::value));
  const std::vector<T> expected = SerialSum<T>(AllRanks(), n);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    std::vector<int64_t> bounds = UnevenBounds(n, comm.size(), seed);
    if (seed == 0) {  // aligned, as the rows of parameters are
      for (int r = 0; r < comm.size(); ++r) bounds[r] = n / comm.size() / 64 * 64 * r;
    }
    const std::vector<double> squares = SquaresBy(comm, expected, bounds);
    const std::vector<double> by_nccl = SquaresBy(without_copies, expected, bounds);
    CHECK(SameBits(squares.data(), by_nccl.data(), static_cast<int64_t>(squares.size())));
    int apart = 0;
    for (size_t i = 0; i < squares.size(); ++i) {
      const int64_t begin = bounds[comm.rank()] + static_cast<int64_t>(i) * kSquaresRun;
      long double exact = 0;
      for (int64_t j = begin; j < std::min(begin + kSquaresRun, bounds[comm.rank() + 1]); ++j)
        exact += static_cast<long double>(expected[j]) * static_cast<long double>(expected[j]);
      apart += !(std::abs(squares[i] - exact) <= 1e-15 * exact);
    }
    CHECK(apart == 0);
  }
}

TEST_CASE("nccl: squares of sums do not depend on who carries them") {
  YM_NEEDS_GPU_RANKS();
  const auto comm = Ranks().nccl.Group(AllRanks(), "world");
  const auto without_copies = Ranks().nccl.Group(AllRanks(), "without copies", /*apart=*/true);
  CHECK_FALSE(comm->sums_squares(DType::kI32));
  CHECK_FALSE(comm->sums_squares(DType::kBF16));
  if (comm->size() == 1) {
    CHECK_FALSE(comm->sums_squares(DType::kF32));
    return;
  }
  for (const int64_t n : {int64_t{1}, kSquaresRun, 5 * kSquaresRun - 1, int64_t{20011}, int64_t{600000}}) {
    CheckSquares<float>(*comm, *without_copies, n);
    CheckSquares<double>(*comm, *without_copies, n);
  }
  const OnGpu<int32_t> x(std::vector<int32_t>(64, 1));
  std::vector<int64_t> bounds(static_cast<size_t>(comm->size()) + 1, 64);
  bounds[0] = 0;
  const OnGpu<double> one(std::vector<double>(1, 0)), two(std::vector<double>(2, 0));
  CHECK_THROWS_AS(comm->ReduceScatterSumAndSquares(Ranks().stream, x.tensor(), bounds, one.tensor()),
                  InternalError);
  const OnGpu<float> y(std::vector<float>(64, 1));
  CHECK_THROWS_AS(comm->ReduceScatterSumAndSquares(Ranks().stream, y.tensor(), bounds, two.tensor()),
                  InternalError);
}

TEST_CASE("nccl: squares of sums in a recording") {
  YM_NEEDS_GPU_RANKS();
  const auto comm = Ranks().nccl.Group(AllRanks(), "world");
  if (comm->size() == 1) YM_SKIP("one rank reduces nothing");
  const int64_t n = 300000 / comm->size() / 4 * 4 * comm->size(), own = n / comm->size();
  std::vector<int64_t> bounds(static_cast<size_t>(comm->size()) + 1);
  for (int r = 0; r <= comm->size(); ++r) bounds[r] = own * r;
  const std::vector<float> mine = ValuesOf<float>(World().rank(), n),
                           expected = SerialSum<float>(AllRanks(), n);
  const std::vector<double> eager = SquaresBy(*comm, expected, bounds);
  const OnGpu<float> x(mine);
  const OnGpu<double> squares(std::vector<double>(eager.size(), -1));
  const auto recording = Ranks().device->Record(Ranks().stream, [&] {
    comm->ReduceScatterSumAndSquares(Ranks().stream, x.tensor(), bounds, squares.tensor());
  });
  for (int i = 0; i < 2; ++i) {
    Ranks().device->CopyFromHost(x.tensor().data(), mine.data(), mine.size() * sizeof(float));
    recording->Replay();
    Ranks().nccl.Replayed(Ranks().stream);
    Ranks().stream.Synchronize();
    CHECK(SameBits(squares.Values().data(), eager.data(), static_cast<int64_t>(eager.size())));
  }
}

TEST_CASE("nccl: sums of more than the working memory") {
  YM_NEEDS_GPU_RANKS();
  const auto comm = Ranks().nccl.Group(AllRanks(), "world");
  CheckSums<float>(*comm, AllRanks(), int64_t{20} << 20, 1);  // 80 MiB
}

TEST_CASE("nccl: why there are no copy engines, and the setting to change where they have no memory") {
  YM_NEEDS_GPU_RANKS();
  auto control = World().WorldGroup();
  if (control->size() == 1) YM_SKIP("one rank has nothing to copy");
  auto* gpu = static_cast<CudaDevice*>(Ranks().device.get());
  CHECK(CopyCollectives::WhyNot(gpu, control.get(), World().host()) == "");
  CHECK(CopyCollectives::WhyNot(gpu, control.get(), World().rank() == 0 ? "here" : "elsewhere") ==
        "rank 0 of world: a peer is on another machine (elsewhere)");
  std::string message;
  try {
    CopyCollectives(gpu, std::move(control), int64_t{1} << 46);  // 64 TiB
  } catch (const Error& e) {
    message = e.what();
  }
  INFO(message);
  CHECK(message.find("runtime.copy_engines") != std::string::npos);
  CHECK(message.find("ep.transport") == std::string::npos);
}

TEST_CASE("nccl: a group's own order is the order of its sums") {
  YM_NEEDS_GPU_RANKS();
  if (World().size() < 3) YM_SKIP("with two ranks there is one order only");
  const std::vector<int64_t> ranks = AllRanks(), reversed(ranks.rbegin(), ranks.rend());
  REQUIRE_FALSE(
      SameBits(SerialSum<float>(ranks, 1000).data(), SerialSum<float>(reversed, 1000).data(), 1000));
  const auto comm = Ranks().nccl.Group(reversed, "reversed");
  CHECK(comm->rank() == World().size() - 1 - World().rank());
  CheckSums<float>(*comm, reversed, 1000);
}

TEST_CASE("nccl: maximum, where NaN wins") {
  YM_NEEDS_GPU_RANKS();
  const auto comm = Ranks().nccl.Group(AllRanks(), "world");
  const int last = World().size() - 1;
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const OnGpu<double> x({static_cast<double>(World().rank()), -1.0 - World().rank(),
                         World().rank() == last ? nan : 5.0, World().rank() == 0 ? nan : inf});
  comm->AllReduceMax(Ranks().stream, x.tensor());
  const std::vector<double> got = x.Values();
  CHECK(got[0] == last);
  CHECK(got[1] == -1.0);
  CHECK(std::isnan(got[2]));
  CHECK(std::isnan(got[3]));
  const OnGpu<int32_t> flags({World().rank() == last ? 2 : 0, 0});
  comm->AllReduceMax(Ranks().stream, flags.tensor());
  CHECK(flags.Values() == std::vector<int32_t>{2, 0});
  std::vector<float> large(600000);
  for (size_t i = 0; i < large.size(); ++i)
    large[i] = static_cast<int>(i) % World().size() == World().rank() ? 3.f : -1.f;
  const OnGpu<float> y(large);
  comm->AllReduceMax(Ranks().stream, y.tensor());
  CHECK(y.Values() == std::vector<float>(600000, 3.f));
}

TEST_CASE("nccl: broadcast from every rank") {
  YM_NEEDS_GPU_RANKS();
  const auto comm = Ranks().nccl.Group(AllRanks(), "world");
  for (int root = 0; root < comm->size(); ++root) {
    const OnGpu<double> x(ValuesOf<double>(World().rank(), 1009));
    comm->Broadcast(Ranks().stream, x.tensor(), root);
    CHECK(SameBits(x.Values().data(), ValuesOf<double>(root, 1009).data(), 1009));
  }
}

TEST_CASE("nccl: groups do not mix") {
  YM_NEEDS_GPU_RANKS();
  const int size = World().size(), rank = World().rank();
  std::vector<int64_t> mine;  // even or odd ranks
  for (int r = rank % 2; r < size; r += 2) mine.push_back(r);
  const auto world = Ranks().nccl.Group(AllRanks(), "world");
  const auto group = Ranks().nccl.Group(mine, rank % 2 ? "odd" : "even");
  CHECK(group->size() == static_cast<int>(mine.size()));
  CHECK(group->rank() == rank / 2);
  // The odd ranks work more often in their own group; the world's calls still meet.
  for (int i = 0; i < (rank % 2 ? 5 : 2); ++i) CheckSums<float>(*group, mine, 257);
  CheckSums<float>(*world, AllRanks(), 257);
}

TEST_CASE("nccl: exchange of unequal blocks, also with oneself") {
  YM_NEEDS_GPU_RANKS();
  const auto group = Ranks().nccl.Group(AllRanks(), "world");
  auto& comm = static_cast<NcclCommunicator&>(*group);
  const int size = comm.size(), rank = comm.rank();
  // Rank p sends q two blocks: of 300 * p + q and of (p + q) % 3 * 1000 values.
  const auto first = [](int p, int q) { return 300 * p + q; };
  const auto second = [](int p, int q) { return (p + q) % 3 * 1000; };
  std::vector<std::unique_ptr<OnGpu<int32_t>>> out, in;
  std::vector<NcclCommunicator::Transfer> sends, receives;
  for (int q = 0; q < size; ++q) {
    out.push_back(std::make_unique<OnGpu<int32_t>>(
        std::vector<int32_t>(static_cast<size_t>(first(rank, q) + second(rank, q)), 1 + rank * size + q)));
    in.push_back(std::make_unique<OnGpu<int32_t>>(
        std::vector<int32_t>(static_cast<size_t>(first(q, rank) + second(q, rank)), 0)));
    const auto block = [&](const Tensor& t, int64_t begin, int64_t n) {
      return NcclCommunicator::Transfer{q, t.as<int32_t>() + begin, n * 4};
    };
    sends.push_back(block(out.back()->tensor(), 0, first(rank, q)));
    sends.push_back(block(out.back()->tensor(), first(rank, q), second(rank, q)));
    receives.push_back(block(in.back()->tensor(), 0, first(q, rank)));
    receives.push_back(block(in.back()->tensor(), first(q, rank), second(q, rank)));
  }
  comm.Exchange(Ranks().stream, sends, receives, "test");
  for (int p = 0; p < size; ++p) {
    CHECK(in[p]->Values() ==
          std::vector<int32_t>(static_cast<size_t>(first(p, rank) + second(p, rank)), 1 + p * size + rank));
  }
}

TEST_CASE("nccl: tensors of the dry device are left alone") {
  YM_NEEDS_GPU_RANKS();
  const auto comm = Ranks().nccl.Group(AllRanks(), "world");
  const auto dry = MakeDryDevice(DeviceKind::kCuda);
  const Stream stream(dry.get());
  const Tensor x(nullptr, DType::kF32, {1000});
  comm->AllReduceSum(stream, x);
  comm->Broadcast(stream, x, 0);
  std::vector<int64_t> bounds(static_cast<size_t>(comm->size()) + 1, 1000);
  bounds[0] = 0;
  comm->ReduceScatterSum(stream, x, bounds);
  bounds.back() = 999;
  if (comm->size() > 1) CHECK_THROWS_AS(comm->AllGather(stream, x, bounds), InternalError);  // not ascending
  CHECK_THROWS_AS(comm->AllReduceSum(stream, Tensor(nullptr, DType::kBF16, {8})), InternalError);
}

}  // namespace
}  // namespace yardmaster::testing
