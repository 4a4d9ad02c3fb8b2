// File: src/comm/ep/cuda/nccl_window_peers.h
//
// Peer memory by NCCL's symmetric windows: several GPUs of one NVLink domain, also where processes or
// machines do not share CUDA IPC. Memory comes from ncclMemAlloc; every region is one window of the same size
// on all ranks, and the addresses of its copies are read once, on the device, when it is made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/ep/cuda/peer_table.h"
#include "src/comm/mpi/mpi_world.h"
#include "src/comm/nccl/nccl_communicator.h"
#include "src/device/cuda/cuda_device.h"

namespace yardmaster {

class NcclWindowPeers : public PeerTable {
 public:
  // Why the ranks of the group do not reach each other by load and store, or "": the same text on all of
  // them.
  static std::string WhyNot(NcclCommunicator* group);

  // `group` and `control` have the same members in the same order and outlive the table, as does `device`.
  NcclWindowPeers(CudaDevice* device, NcclCommunicator* group, MpiCommunicator* control);
  // Collective, but for the way of an exception, which leaves windows to the end of the process.
  ~NcclWindowPeers() override;

 protected:
  Region Map(size_t bytes) override;

 private:
  struct Window {
    void* memory = nullptr;
    void* handle = nullptr;  // ncclWindow_t
  };
  CudaDevice* device_;
  NcclCommunicator* group_;
  MpiCommunicator* control_;
  std::vector<Window> windows_;
  int exceptions_at_start_;
};

}  // namespace yardmaster
