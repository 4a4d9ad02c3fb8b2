// Collectives over MPI against serial loops, to the bit. Runs with 1, 2 and 4 ranks.
#include <cmath>
#include <limits>
#include <numeric>

#include "src/comm/communicator.h"
#include "tests/catch.h"
#include "tests/comm/mpi_fixture.h"

namespace yardmaster {
namespace {

using testing::CpuStream;
using testing::SameBits;
using testing::TensorOf;
using testing::Value;
using testing::World;

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

std::vector<int64_t> AllRanks() {
  std::vector<int64_t> ranks(static_cast<size_t>(World().size()));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  return ranks;
}

// Uneven, with empty ranges; every rank of the group knows them.
std::vector<int64_t> UnevenBounds(int64_t n, int size, uint64_t seed) {
  std::vector<int64_t> bounds(static_cast<size_t>(size) + 1, n);
  bounds[0] = 0;
  for (int r = 1; r < size; ++r) {
    const double u = PhiloxUniform(5, seed, static_cast<uint64_t>(r));
    bounds[r] =
        u < 0.3 ? bounds[r - 1]
                : bounds[r - 1] + static_cast<int64_t>(u * static_cast<double>(n - bounds[r - 1]));
  }
  return bounds;
}

template <class T>
void CheckSums(Communicator& comm, const std::vector<int64_t>& ranks, int64_t n) {
  INFO("n = " << n << ", " << DTypeName(DTypeOf<T>::value) << ", group " << comm.name());
  const std::vector<T> expected = SerialSum<T>(ranks, n);
  std::vector<T> x = ValuesOf<T>(World().rank(), n);
  comm.AllReduceSum(CpuStream(), TensorOf(x));
  CHECK(SameBits(x.data(), expected.data(), n));

  for (uint64_t seed = 0; seed < 3; ++seed) {
    const std::vector<int64_t> bounds = UnevenBounds(n, comm.size(), seed);
    x = ValuesOf<T>(World().rank(), n);
    comm.ReduceScatterSum(CpuStream(), TensorOf(x), bounds);
    const int64_t begin = bounds[comm.rank()], end = bounds[comm.rank() + 1];
    CHECK(SameBits(x.data() + begin, expected.data() + begin, end - begin));
    // Only the own range is defined: the gather must not read more.
    for (int64_t i = 0; i < n; ++i) {
      if (i < begin || i >= end) x[i] = static_cast<T>(-12345);
    }
    comm.AllGather(CpuStream(), TensorOf(x), bounds);
    CHECK(SameBits(x.data(), expected.data(), n));
  }
}

TEST_CASE("sums are added in rank order, of any size and type") {
  const auto comm = World().WorldGroup();
  for (int64_t n : {0, 1, 2, 3, 127, 5003}) {
    CheckSums<float>(*comm, AllRanks(), n);
    CheckSums<double>(*comm, AllRanks(), n);
    CheckSums<int32_t>(*comm, AllRanks(), n);
    CheckSums<int64_t>(*comm, AllRanks(), n);
  }
}

TEST_CASE("sums of more than a segment") {
  const auto comm = World().WorldGroup();
  CheckSums<double>(*comm, AllRanks(), int64_t{600} << 10);  // own ranges of over 1 MiB at 4 ranks
}

TEST_CASE("rank order shows in the bits") {
  if (World().size() < 3) YM_SKIP("with two ranks there is one order only");
  const std::vector<int64_t> ranks = AllRanks(), reversed(ranks.rbegin(), ranks.rend());
  const int64_t n = 1000;
  REQUIRE_FALSE(
      SameBits(SerialSum<float>(ranks, n).data(), SerialSum<float>(reversed, n).data(), n));
  // A group lists its ranks in any order, and that is the order of its sums.
  const auto comm = World().Group(reversed, "reversed");
  CHECK(comm->rank() == World().size() - 1 - World().rank());
  CheckSums<float>(*comm, reversed, n);
}

TEST_CASE("int64 sums are exact") {
  const auto comm = World().WorldGroup();
  std::vector<int64_t> x = {(int64_t{1} << 60) + World().rank(), -7};
  comm->AllReduceSum(CpuStream(), TensorOf(x));
  const int64_t n = World().size();
  CHECK(x[0] == n * (int64_t{1} << 60) + n * (n - 1) / 2);
  CHECK(x[1] == -7 * n);
}

TEST_CASE("maximum, where NaN wins") {
  const auto comm = World().WorldGroup();
  const int last = World().size() - 1;
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               inf = std::numeric_limits<double>::infinity();
  std::vector<double> x = {static_cast<double>(World().rank()), -1.0 - World().rank(),
                           World().rank() == last ? nan : 5.0, World().rank() == 0 ? nan : inf};
  comm->AllReduceMax(CpuStream(), TensorOf(x));
  CHECK(x[0] == last);
  CHECK(x[1] == -1.0);
  CHECK(std::isnan(x[2]));
  CHECK(std::isnan(x[3]));
  std::vector<int32_t> flags = {World().rank() == last ? 2 : 0, 0};
  comm->AllReduceMax(CpuStream(), TensorOf(flags));
  CHECK(flags == std::vector<int32_t>{2, 0});
  std::vector<float> large(200000);
  for (size_t i = 0; i < large.size(); ++i)
    large[i] = static_cast<int>(i) % World().size() == World().rank() ? 3.f : -1.f;
  comm->AllReduceMax(CpuStream(), TensorOf(large));
  CHECK(large == std::vector<float>(200000, 3.f));
}

TEST_CASE("broadcast from every rank") {
  const auto comm = World().WorldGroup();
  for (int root = 0; root < comm->size(); ++root) {
    std::vector<double> x = ValuesOf<double>(World().rank(), 1009);
    comm->Broadcast(CpuStream(), TensorOf(x), root);
    CHECK(SameBits(x.data(), ValuesOf<double>(root, 1009).data(), 1009));
  }
}

TEST_CASE("groups do not mix") {
  const int size = World().size(), rank = World().rank();
  std::vector<int64_t> mine;  // even or odd ranks
  for (int r = rank % 2; r < size; r += 2) mine.push_back(r);
  const auto world = World().WorldGroup();
  const auto group = World().Group(mine, rank % 2 ? "odd" : "even");
  CHECK(group->size() == static_cast<int>(mine.size()));
  CHECK(group->rank() == rank / 2);
  CHECK(group->world_rank(group->rank()) == rank);
  // The odd ranks work more often in their own group; the world's calls still meet.
  for (int i = 0; i < (rank % 2 ? 5 : 2); ++i) CheckSums<float>(*group, mine, 257);
  CheckSums<float>(*world, AllRanks(), 257);
}

TEST_CASE("exchange of unequal blocks, also with oneself") {
  const auto comm = World().WorldGroup();
  const int size = comm->size(), rank = comm->rank();
  // Rank p sends q two blocks: of 300 * p + q and of (p + q) % 3 * 1000 bytes.
  const auto first = [](int p, int q) { return 300 * p + q; };
  const auto second = [](int p, int q) { return (p + q) % 3 * 1000; };
  std::vector<std::vector<char>> out, in;
  for (int q = 0; q < size; ++q) {
    out.emplace_back(first(rank, q) + second(rank, q), static_cast<char>(1 + rank * size + q));
    if (second(rank, q)) out.back().back() = 'z';
    in.emplace_back(first(q, rank) + second(q, rank), 0);
  }
  std::vector<MpiCommunicator::Transfer> sends, receives;
  for (int q = 0; q < size; ++q) {
    sends.push_back({q, out[q].data(), first(rank, q)});
    sends.push_back({q, out[q].data() + first(rank, q), second(rank, q)});
    receives.push_back({q, in[q].data(), first(q, rank)});
    receives.push_back({q, in[q].data() + first(q, rank), second(q, rank)});
  }
  comm->Exchange(sends, receives, "test");
  for (int p = 0; p < size; ++p) {
    std::vector<char> expected(first(p, rank) + second(p, rank),
                               static_cast<char>(1 + p * size + rank));
    if (second(p, rank)) expected.back() = 'z';
    CHECK(in[p] == expected);
  }
}

TEST_CASE("tensors of the dry device are left alone") {
  const auto comm = World().WorldGroup();
  const auto dry = MakeDryDevice();
  const Stream stream(dry.get());
  const Tensor x(nullptr, DType::kF32, {1000});
  comm->AllReduceSum(stream, x);
  comm->Broadcast(stream, x, 0);
  std::vector<int64_t> bounds(static_cast<size_t>(comm->size()) + 1, 1000);
  bounds[0] = 0;
  comm->ReduceScatterSum(stream, x, bounds);
  bounds.back() = 999;
  if (comm->size() > 1)
    CHECK_THROWS_AS(comm->AllGather(stream, x, bounds), InternalError);  // not ascending
  CHECK_THROWS_AS(comm->AllReduceSum(stream, Tensor(nullptr, DType::kBF16, {8})), InternalError);
}

TEST_CASE("a group of one changes nothing") {
  const auto self = MakeSelfCommunicator("self");
  std::vector<float> x = ValuesOf<float>(3, 100);
  const std::vector<float> before = x;
  self->AllReduceSum(CpuStream(), TensorOf(x));
  self->AllReduceMax(CpuStream(), TensorOf(x));
  self->ReduceScatterSum(CpuStream(), TensorOf(x), {0, 100});
  self->AllGather(CpuStream(), TensorOf(x), {0, 100});
  self->Broadcast(CpuStream(), TensorOf(x), 0);
  CHECK(SameBits(x.data(), before.data(), 100));
  CHECK(self->size() == 1);
  CHECK_THROWS_AS(self->Broadcast(CpuStream(), TensorOf(x), 1), InternalError);
  CHECK_THROWS_AS(self->AllGather(CpuStream(), TensorOf(x), {0, 101}), InternalError);
}

}  // namespace
}  // namespace yardmaster
