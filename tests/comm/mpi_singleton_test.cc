// A process that mpirun did not start is a world of one rank.
#include <cstdlib>
#include <numeric>

#include "src/comm/agree.h"
#include "tests/catch.h"
#include "tests/comm/mpi_fixture.h"

namespace yardmaster {
namespace {

TEST_CASE("a world of one without mpirun") {
  setenv("TMPDIR", "/tmp",
         1);  // Open MPI names sockets below it, and Bazel's is too long for a socket's path
  CHECK_FALSE(MpiWorld::Launched());
  MpiWorld& world = testing::World();
  CHECK(world.rank() == 0);
  CHECK(world.size() == 1);
  CHECK(world.local_rank() == 0);
  CHECK(world.local_size() == 1);
  const auto comm = world.WorldGroup();
  std::vector<float> x(100);
  std::iota(x.begin(), x.end(), 0.f);
  const std::vector<float> before = x;
  comm->AllReduceSum(testing::CpuStream(), testing::TensorOf(x));
  comm->ReduceScatterSum(testing::CpuStream(), testing::TensorOf(x), {0, 100});
  comm->AllGather(testing::CpuStream(), testing::TensorOf(x), {0, 100});
  CHECK(x == before);
  const auto agreement = world.MakeAgreement();
  CHECK(agreement->AllGather("a") == std::vector<std::string>{"a"});
  CHECK(agreement->Broadcast("b") == "b");
  CHECK_THROWS_AS(AgreeOrThrow(
                      *agreement, [] { throw DataError("c"); }, "d"),
                  AgreedError);
}

}  // namespace
}  // namespace yardmaster
