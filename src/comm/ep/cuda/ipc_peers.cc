#include "src/comm/ep/cuda/ipc_peers.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>

#include "src/base/strings.h"

namespace yardmaster {
namespace {

constexpr size_t kUnit = size_t{2} << 20;

// One value of each rank of the group, by rank.
template <class T>
std::vector<T> GatherAll(MpiCommunicator* control, const T& mine, const char* what) {
  const int n = control->size();
  std::vector<T> all(static_cast<size_t>(n));
  std::vector<MpiCommunicator::Transfer> sends, receives;
  T own = mine;
  for (int r = 0; r < n; ++r) {
    sends.push_back({r, &own, sizeof(T)});
    receives.push_back({r, &all[static_cast<size_t>(r)], sizeof(T)});
  }
  control->Exchange(sends, receives, what);
  return all;
}

struct Card {
  char host[256] = "";
  char bus[32] = "";
};

struct Answer {
  char text[160] = "";  // "": all right
};

struct Export {
  cudaIpcMemHandle_t handle;
  size_t bytes = 0;
  bool ok = false;
};

}  // namespace

std::string IpcPeers::FirstTrouble(MpiCommunicator* control, const std::string& mine) {
  Answer answer;
  std::snprintf(answer.text, sizeof(answer.text), "%s", mine.c_str());
  const std::vector<Answer> all = GatherAll(control, answer, "access to peers' memory");
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].text[0] != '\0') return StrCat("rank ", r, " of ", control->name(), ": ", all[r].text);
  }
  return "";
}

std::string IpcPeers::WhyNot(CudaDevice* device, MpiCommunicator* control, const std::string& host) {
  Card card;
  std::snprintf(card.host, sizeof(card.host), "%s", host.c_str());
  device->Check(cudaDeviceGetPCIBusId(card.bus, sizeof(card.bus), device->index()), "peer memory",
                "cudaDeviceGetPCIBusId");
  const std::vector<Card> all = GatherAll(control, card, "the peers' GPUs");
  std::string mine;
  for (const Card& other : all) {
    if (!mine.empty()) break;
    if (std::strcmp(other.host, card.host) != 0) {
      mine = StrCat("a peer is on another machine (", other.host, ")");
      continue;
    }
    if (std::strcmp(other.bus, card.bus) == 0) continue;
    int there = -1, reaches = 0;
    if (cudaDeviceGetByPCIBusId(&there, other.bus) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      mine = StrCat("the GPU ", other.bus, " of a peer is hidden from it (CUDA_VISIBLE_DEVICES)");
    } else if (cudaDeviceCanAccessPeer(&reaches, device->index(), there) != cudaSuccess || reaches == 0) {
      static_cast<void>(cudaGetLastError());
      mine = StrCat("its GPU ", card.bus, " cannot reach the memory of GPU ", other.bus);
    }
  }
  return FirstTrouble(control, mine);
}

IpcPeers::IpcPeers(CudaDevice* device, MpiCommunicator* control, const Purpose& purpose)
    : PeerTable(control->rank(), control->size()),
      device_(device),
      control_(control),
      purpose_(purpose),
      exceptions_at_start_(std::uncaught_exceptions()) {}

IpcPeers::~IpcPeers() {
  const bool orderly = std::uncaught_exceptions() <= exceptions_at_start_;
  static_cast<void>(cudaSetDevice(device_->index()));
  static_cast<void>(cudaDeviceSynchronize());
  for (void* p : opened_) static_cast<void>(cudaIpcCloseMemHandle(p));
  if (orderly) {
    try {
      GatherAll(control_, char{1}, "the end of peer memory");
    } catch (const std::exception&) {
      // A peer is gone: its process has released what it had opened.
    }
  }
  for (void* p : own_) device_->Free(p);
}

PeerTable::Region IpcPeers::Map(size_t bytes) {
  Region region;
  region.bytes = std::max<size_t>((bytes + kUnit - 1) / kUnit, 1) * kUnit;
  std::string trouble;
  Export mine;
  void* own = nullptr;
  try {
    own = device_->Allocate(region.bytes);
    own_.push_back(own);
    mine.bytes = region.bytes;
    const cudaError_t result = cudaIpcGetMemHandle(&mine.handle, own);
    mine.ok = result == cudaSuccess;
    if (!mine.ok) trouble = StrCat("cudaIpcGetMemHandle: ", cudaGetErrorString(result));
  } catch (const std::exception& e) {
    trouble = e.what();
  }
  const std::vector<Export> all = GatherAll(control_, mine, "memory handles");
  region.base.assign(static_cast<size_t>(size()), nullptr);
  for (int r = 0; r < size(); ++r) {
    const Export& e = all[static_cast<size_t>(r)];
    if (r == rank()) {
      region.base[static_cast<size_t>(r)] = static_cast<char*>(own);
      continue;
    }
    if (!e.ok || !trouble.empty()) continue;
    void* p = nullptr;
    const cudaError_t result = cudaIpcOpenMemHandle(&p, e.handle, cudaIpcMemLazyEnablePeerAccess);
    if (result != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      trouble = StrCat("cudaIpcOpenMemHandle of rank ", r, ": ", cudaGetErrorString(result));
      continue;
    }
    opened_.push_back(p);
    region.base[static_cast<size_t>(r)] = static_cast<char*>(p);
  }
  const std::string first = FirstTrouble(control_, trouble);
  if (!first.empty()) {
    throw ConfigError(StrCat(purpose_.what, " of ", HumanBytes(static_cast<double>(region.bytes)),
                             " cannot be had: ", first),
                      purpose_.setting, purpose_.hint);
  }
  return region;
}

}  // namespace yardmaster
