// Memory that other ranks reach, by CUDA IPC and by NCCL's windows: every rank writes into every other's.
#include "src/comm/ep/cuda/ipc_peers.h"
#include "src/comm/ep/cuda/nccl_window_peers.h"
#include "src/comm/nccl/nccl_communicator.h"
#include "tests/comm/nccl/gpu_ranks.h"

namespace yardmaster::testing {
namespace {

CudaDevice* Gpu() { return static_cast<CudaDevice*>(Ranks().device.get()); }
void Barrier() { Ranks().agreement->AllGather(""); }

// What `from` writes for `to`.
std::vector<int64_t> Pattern(int from, int to, int64_t n, int64_t salt) {
  std::vector<int64_t> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[i] = salt + 1000000 * from + 1000 * to + i;
  return v;
}

void CheckRegion(PeerTable& table, size_t bytes, int64_t salt) {
  constexpr int64_t kValues = 64;
  constexpr size_t kBytes = kValues * sizeof(int64_t);
  const int n = table.size(), me = table.rank();
  char* mine = static_cast<char*>(table.Allocate(bytes));
  REQUIRE(reinterpret_cast<uintptr_t>(mine) % 256 == 0);
  const PeerTable::Region& region = table.region(table.regions() - 1);
  REQUIRE(region.bytes >= bytes);
  REQUIRE(bytes >= kBytes * static_cast<size_t>(n + 1));
  std::vector<int64_t> got(kValues, -1);
  Gpu()->CopyToHost(got.data(), mine, kBytes);
  CHECK(got == std::vector<int64_t>(kValues, 0));
  Barrier();
  // Slot r of a rank's memory is written by rank r; the last values of the region by nobody but its owner.
  for (int q = 0; q < n; ++q)
    Gpu()->CopyFromHost(region.base[q] + static_cast<size_t>(me) * kBytes,
                        Pattern(me, q, kValues, salt).data(), kBytes);
  Gpu()->CopyFromHost(mine + bytes - kBytes, Pattern(me, 99, kValues, salt).data(), kBytes);
  Barrier();
  for (int r = 0; r < n; ++r) {
    Gpu()->CopyToHost(got.data(), mine + static_cast<size_t>(r) * kBytes, kBytes);
    CHECK(got == Pattern(r, me, kValues, salt));
    Gpu()->CopyToHost(got.data(), region.base[r] + bytes - kBytes, kBytes);
    CHECK(got == Pattern(r, 99, kValues, salt));
  }
  const auto place = table.Find(mine + 256, 64);
  REQUIRE(place.has_value());
  CHECK(place->region == table.regions() - 1);
  CHECK(place->offset == 256);
  CHECK_FALSE(table.Find(mine + region.bytes - 8, 16).has_value());
  Barrier();
}

TEST_CASE("peer memory by CUDA IPC") {
  YM_NEEDS_GPU_RANKS();
  const auto control = World().WorldGroup();
  REQUIRE(IpcPeers::WhyNot(Gpu(), control.get(), World().host()) == "");
  IpcPeers table(Gpu(), control.get());
  CheckRegion(table, 4096 + 8 * 512, 7);
  CheckRegion(table, (size_t{3} << 20) + 4096, 8);
  CheckRegion(table, size_t{64} << 20, 9);
}

TEST_CASE("peer memory by CUDA IPC: machines that share nothing are named") {
  YM_NEEDS_GPU_RANKS();
  if (World().size() == 1) YM_SKIP("one rank has no peers");
  const auto control = World().WorldGroup();
  const std::string why = IpcPeers::WhyNot(Gpu(), control.get(), World().rank() == 0 ? "here" : "elsewhere");
  CHECK(why == "rank 0 of world: a peer is on another machine (elsewhere)");
}

TEST_CASE("peer memory that is not there is an error on all ranks") {
  YM_NEEDS_GPU_RANKS();
  const auto control = World().WorldGroup();
  IpcPeers table(Gpu(), control.get());
  CHECK_THROWS_AS(table.Allocate(size_t{1} << 46), Error);  // 64 TiB
  CheckRegion(table, 1 << 16, 3);                           // and the table still works
}

TEST_CASE("peer memory by NCCL's windows") {
  YM_NEEDS_GPU_RANKS();
  const auto group = Ranks().nccl.Group(AllRanks(), "ep");
  auto& comm = static_cast<NcclCommunicator&>(*group);
  if (World().size() == 1) YM_SKIP("one rank has no peers");
  const std::string why = NcclWindowPeers::WhyNot(&comm);
  if (World().local_size() > CudaAvailability().usable) {
    CHECK(why.find("within reach of loads and stores") != std::string::npos);
    YM_SKIP("windows need a GPU for each rank: " + why);
  }
  REQUIRE(why == "");
  const auto control = World().WorldGroup();
  NcclWindowPeers table(Gpu(), &comm, control.get());
  CheckRegion(table, 4096 + 8 * 512, 7);
  CheckRegion(table, size_t{64} << 20, 9);
}

}  // namespace
}  // namespace yardmaster::testing
