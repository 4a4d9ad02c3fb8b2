// File: src/comm/ep/cuda/virtual_peers.h
//
// Several ranks of one group in one process, on one GPU: peer memory is slices of one allocation. For tests and
// benchmarks. Each rank has its own stream. Ranks wait for each other inside kernels, therefore:
// - all their thread blocks must fit on the GPU together (ranks * PeerOptions.num_sms at most its multiprocessors);
// - streams must not share a hardware queue, and kernels must be loaded before one of them waits, since loading waits for
//   what runs: CUDA_DEVICE_MAX_CONNECTIONS=32 and CUDA_MODULE_LOADING=EAGER before the first CUDA call of the process
//   (PrepareProcess sets them);
// - between the calls for the first and the last rank nothing may wait for the GPU.
#pragma once

#include <memory>
#include <vector>

#include "src/comm/ep/cuda/peer_table.h"

namespace yardmaster {

class VirtualPeers {
 public:
  // For at most 32 ranks. Regions are as large on every rank.
  VirtualPeers(Device* device, int ranks);
  ~VirtualPeers();
  VirtualPeers(const VirtualPeers&) = delete;
  VirtualPeers& operator=(const VirtualPeers&) = delete;

  int size() const { return static_cast<int>(tables_.size()); }
  // "Collective" calls are made for one rank after the other, from one thread.
  PeerTable* table(int rank) { return tables_[static_cast<size_t>(rank)].get(); }

  static void PrepareProcess();

 private:
  class Table;
  struct Slices {
    char* base = nullptr;
    size_t bytes = 0;  // of a rank
  };
  const Slices& Region(size_t i, size_t bytes);

  Device* device_;
  std::vector<Slices> regions_;
  std::vector<std::unique_ptr<PeerTable>> tables_;
};

}  // namespace yardmaster
