// File: src/comm/ep/cuda/ipc_peers.h
//
// Peer memory by CUDA IPC: each rank allocates, and opens what the others of its machine have allocated, on
// the same GPU or on another that its own can reach. Private allocations are exported whole, in units of 2
// MiB, so that nothing else lies in what a peer can write.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/ep/cuda/peer_table.h"
#include "src/comm/mpi/mpi_world.h"
#include "src/device/cuda/cuda_device.h"

namespace yardmaster {

class IpcPeers : public PeerTable {
 public:
  // Why the ranks of `control`, this one on `host`, cannot reach each other's memory so, or "": the same text
  // on all of them. Collective.
  static std::string WhyNot(CudaDevice* device, MpiCommunicator* control, const std::string& host);
  // From what is wrong on this rank, "" for nothing: what is wrong on any rank, which is named, on
  // all. Collective.
  static std::string FirstTrouble(MpiCommunicator* control, const std::string& mine);

  // What an error says where memory cannot be had.
  struct Purpose {
    const char* what = "peer memory";
    const char* setting = "ep.transport";
    const char* hint = "set ep.transport to nccl, or use a smaller micro-batch";
  };
  // `control`, the group, must outlive the table, as must `device`.
  IpcPeers(CudaDevice* device, MpiCommunicator* control, const Purpose& purpose);
  IpcPeers(CudaDevice* device, MpiCommunicator* control) : IpcPeers(device, control, Purpose{}) {}
  // Waits for the other ranks, which must have closed this rank's memory before it is freed; not while an
  // exception passes through.
  ~IpcPeers() override;

 protected:
  Region Map(size_t bytes) override;

 private:
  CudaDevice* device_;
  MpiCommunicator* control_;
  Purpose purpose_;
  std::vector<void*> own_;     // allocated here
  std::vector<void*> opened_;  // of peers
  int exceptions_at_start_;
};

}  // namespace yardmaster
