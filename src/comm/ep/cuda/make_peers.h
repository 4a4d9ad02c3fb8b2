// File: src/comm/ep/cuda/make_peers.h
//
// The way to peer memory for code that sees no CUDA header. Only in builds with CUDA.
#pragma once

#include <memory>
#include <string>

#include "src/comm/communicator.h"
#include "src/comm/ep/cuda/peer_table.h"
#include "src/comm/mpi/mpi_world.h"

namespace yardmaster {

struct PeersWanted {
  // windows: NCCL's (nccl_window_peers.h); ipc: CUDA IPC (ipc_peers.h); any: windows where they are, else
  // ipc.
  enum class Way { kAny, kWindows, kIpc } way = Way::kAny;
  std::string host;  // this rank's machine
};

// Peer memory of a group on cuda devices. `group` is an NcclCommunicator and `control` the same ranks over
// MPI; both, and `device`, outlive the table. Null where the ranks do not reach each other so, on all of them
// alike; `how` says which way was taken, or why there is none. Collective.
std::unique_ptr<PeerTable> MakePeers(const PeersWanted& wanted, Device* device, Communicator* group,
                                     MpiCommunicator* control, std::string* how);

// Plain stores of `bytes`, a multiple of 16, by `sms` thread blocks: what dispatch is measured against.
void StoreToPeer(const Stream& stream, const void* from, void* to, int64_t bytes, int sms);

}  // namespace yardmaster
