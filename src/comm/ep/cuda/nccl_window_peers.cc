#include "src/comm/ep/cuda/nccl_window_peers.h"

#include <algorithm>
#include <exception>

#include "kernels/peers/lsa_pointers.h"
#include "src/base/strings.h"
#include "src/comm/nccl/nccl_communicator_impl.h"
#include "src/comm/nccl/nccl_library.h"

namespace yardmaster {
namespace {

constexpr size_t kUnit = size_t{2} << 20;

}  // namespace

std::string NcclWindowPeers::WhyNot(NcclCommunicator* group) {
  const ncclTeam_t team = Nccl().TeamLsa(group->handle().link->comm);
  if (team.nRanks == group->size()) return "";
  return StrCat("NCCL finds ", team.nRanks, team.nRanks == 1 ? " rank" : " ranks",
                " within reach of loads and stores (NVLink, or PCIe peer access), the group ", group->name(),
                " has ", group->size());
}

NcclWindowPeers::NcclWindowPeers(CudaDevice* device, NcclCommunicator* group, MpiCommunicator* control)
    : PeerTable(group->rank(), group->size()),
      device_(device),
      group_(group),
      control_(control),
      exceptions_at_start_(std::uncaught_exceptions()) {}

NcclWindowPeers::~NcclWindowPeers() {
  if (std::uncaught_exceptions() > exceptions_at_start_) return;
  static_cast<void>(cudaSetDevice(device_->index()));
  static_cast<void>(cudaDeviceSynchronize());
  for (auto w = windows_.rbegin(); w != windows_.rend(); ++w) {
    if (w->handle != nullptr)
      static_cast<void>(
          Nccl().CommWindowDeregister(group_->handle().link->comm, static_cast<ncclWindow_t>(w->handle)));
    static_cast<void>(Nccl().MemFree(w->memory));
  }
}

PeerTable::Region NcclWindowPeers::Map(size_t bytes) {
  const NcclLibrary& nccl = Nccl();
  // One size for all: the largest.
  std::vector<uint64_t> wanted(static_cast<size_t>(size()));
  uint64_t mine = bytes;
  std::vector<MpiCommunicator::Transfer> sends, receives;
  for (int r = 0; r < size(); ++r) {
    sends.push_back({r, &mine, sizeof(mine)});
    receives.push_back({r, &wanted[static_cast<size_t>(r)], sizeof(mine)});
  }
  control_->Exchange(sends, receives, "sizes of windows");
  const uint64_t most = *std::max_element(wanted.begin(), wanted.end());
  Region region;
  region.bytes = std::max<size_t>((most + kUnit - 1) / kUnit, 1) * kUnit;

  const std::string what = StrCat("a window of ", HumanBytes(static_cast<double>(region.bytes)));
  windows_.emplace_back();
  Window& window = windows_.back();
  nccl.Check(nccl.MemAlloc(&window.memory, region.bytes), "ncclMemAlloc", what);
  device_->Check(cudaMemset(window.memory, 0, region.bytes), "peer memory", "cudaMemset");
  device_->Check(cudaDeviceSynchronize(), "peer memory", "cudaDeviceSynchronize");
  ncclWindow_t handle = nullptr;
  nccl.Check(nccl.CommWindowRegister(group_->handle().link->comm, window.memory, region.bytes, &handle,
                                     NCCL_WIN_COLL_SYMMETRIC),
             "ncclCommWindowRegister", what);
  if (handle == nullptr)
    throw ConfigError(StrCat(what, ": this NCCL gives no symmetric windows here"), "ep.transport",
                      "unset NCCL_WIN_ENABLE and NCCL_CUMEM_ENABLE, or set ep.transport to nccl");
  window.handle = handle;

  std::vector<uint64_t> addresses(static_cast<size_t>(size()));
  void* scratch = device_->Allocate(addresses.size() * sizeof(uint64_t));
  device_->Check(ReadLsaPointers(handle, size(), static_cast<uint64_t*>(scratch), device_->compute_stream()),
                 "peer memory", "ReadLsaPointers");
  device_->CopyToHost(addresses.data(), scratch, addresses.size() * sizeof(uint64_t));
  device_->Free(scratch);
  for (const uint64_t address : addresses) region.base.push_back(reinterpret_cast<char*>(address));
  // The window's own address of this rank may be another mapping of `memory`: peers and this rank use one of
  // them.
  YM_CHECK(region.base[static_cast<size_t>(rank())] != nullptr, "no address of an own window");
  return region;
}

}  // namespace yardmaster
