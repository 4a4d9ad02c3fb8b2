// Agreement over MPI, errors of one rank, deadlines. Runs with 1, 2 and 4 ranks.
#include "src/base/agreement.h"

#include <mpi.h>

#include "src/comm/agree.h"
#include "src/comm/mpi/mpi_call.h"
#include "tests/catch.h"
#include "tests/comm/mpi_fixture.h"

namespace yardmaster {
namespace {

using testing::World;

// Of any length, with any bytes.
std::string TextOf(int rank, size_t length) {
  std::string text;
  for (size_t i = 0; i < length; ++i)
    text.push_back(static_cast<char>((i * 7 + static_cast<size_t>(rank)) % 256));
  return text;
}

TEST_CASE("who is where") {
  CHECK(World().rank() >= 0);
  CHECK(World().rank() < World().size());
  CHECK(World().local_size() == World().size());  // tests run on one machine
  CHECK(World().local_rank() == World().rank());
  CHECK_FALSE(World().host().empty());
  CHECK(MpiWorld::Launched());
  CHECK_THROWS_AS(MpiWorld(), InternalError);  // one in a process
}

TEST_CASE("strings reach everybody") {
  const auto agreement = World().MakeAgreement();
  const int size = agreement->size(), rank = agreement->rank();
  CHECK(size == World().size());
  CHECK(rank == World().rank());
  for (size_t length : {size_t{0}, size_t{1}, size_t{100}, size_t{5000}}) {
    // Lengths differ; the last rank has none.
    const auto length_of = [&](int r) {
      return r == size - 1 ? 0 : length * static_cast<size_t>(r + 1);
    };
    const std::vector<std::string> all = agreement->AllGather(TextOf(rank, length_of(rank)));
    const std::vector<std::string> gathered = agreement->Gather(TextOf(rank, length_of(rank)));
    REQUIRE(all.size() == static_cast<size_t>(size));
    for (int r = 0; r < size; ++r) CHECK(all[r] == TextOf(r, length_of(r)));
    CHECK(gathered == (rank == 0 ? all : std::vector<std::string>()));
    CHECK(agreement->Broadcast(TextOf(rank, length)) == TextOf(0, length));
  }
}

TEST_CASE("an error of one rank is everybody's") {
  const auto agreement = World().MakeAgreement();
  const int size = agreement->size(), rank = agreement->rank();
  for (int failing = 0; failing < size; ++failing) {
    try {
      AgreeOrThrow(
          *agreement,
          [&] {
            if (rank == failing) throw DataError("byte 17 is wrong", "train.bin");
          },
          "reading the data");
      FAIL("nothing was thrown");
    } catch (const AgreedError& e) {
      CHECK(e.code() == ExitCode::kData);
      CHECK(e.failed_rank() == failing);
      const std::string on = size == 1 ? "" : StrCat(" on rank ", failing, " of ", size);
      CHECK(std::string(e.what()) ==
            "reading the data failed" + on + ": train.bin: byte 17 is wrong");
    }
  }
  // Several at once: the lowest rank speaks. Bugs are agreed on too.
  if (size > 1) {
    try {
      AgreeOrThrow(
          *agreement,
          [&] {
            if (rank == 0) return;
            if (rank == 1) YM_CHECK_EQ(rank, -1);
            throw CheckpointError("disk full");
          },
          "saving");
      FAIL("nothing was thrown");
    } catch (const AgreedError& e) {
      CHECK(e.failed_rank() == 1);
      CHECK(e.code() == ExitCode::kInternal);
      CHECK(std::string(e.what()).find("check failed: rank == -1") != std::string::npos);
      CHECK((std::string(e.what()).find("others)") != std::string::npos) == (size > 3));
    }
  }
  // Afterwards the ranks still understand each other.
  int ran = 0;
  AgreeOrThrow(
      *agreement, [&] { ++ran; }, "nothing");
  CHECK(ran == 1);
  CHECK(agreement->Broadcast(StrCat("from ", rank)) == "from 0");
}

TEST_CASE("a process alone agrees with itself") {
  SingleProcess alone;
  AgreeOrThrow(
      alone, [] {}, "nothing");
  CHECK_THROWS_AS(AgreeOrThrow(
                      alone, [] { throw 3; }, "something odd"),
                  AgreedError);
}

TEST_CASE("a wait that is too long names who is missing, and nothing follows") {
  World();
  MPI_Comm comm = MPI_COMM_NULL;
  YM_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  MpiState state;
  state.timeout_seconds = 0.05;
  state.world_rank = World().rank();
  state.world_size = World().size();
  int got = 0;
  const int value = 42;
  // Two receives from oneself: one is sent, one is late.
  std::vector<MPI_Request> requests(2, MPI_REQUEST_NULL);
  YM_MPI(MPI_Irecv(&got, 1, MPI_INT, World().rank(), 8, comm, &requests[1]));
  int early = 0;
  YM_MPI(MPI_Irecv(&early, 1, MPI_INT, World().rank(), 7, comm, &requests[0]));
  YM_MPI(MPI_Send(&value, 1, MPI_INT, World().rank(), 7, comm));
  try {
    MpiWait(state, requests, "two numbers", [](size_t i) { return StrCat("peer ", i); });
    FAIL("nothing was thrown");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::kWatchdog);
    const std::string text = e.what();
    CHECK(text.find(StrCat("rank ", World().rank(), " of ", World().size())) != std::string::npos);
    CHECK(text.find("for two numbers: peer 1 did not arrive") != std::string::npos);
  }
  CHECK(early == 42);
  CHECK_THROWS_AS(MpiCheckUsable(state), Error);
  // The late message is taken, so that the world can end.
  YM_MPI(MPI_Send(&value, 1, MPI_INT, World().rank(), 8, comm));
  YM_MPI(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
  CHECK(got == 42);
  YM_MPI(MPI_Comm_free(&comm));
}

}  // namespace
}  // namespace yardmaster
