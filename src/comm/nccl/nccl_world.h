// File: src/comm/nccl/nccl_world.h
//
// NCCL for the length of a run, beside MpiWorld: groups of ranks for the memory of their GPUs, and the
// watchdog over what they do. For code that sees no CUDA header; in a build without CUDA the constructor
// throws ConfigError.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/base/agreement.h"
#include "src/comm/communicator.h"
#include "src/comm/mpi/mpi_world.h"
#include "src/device/device.h"

namespace yardmaster {

struct NcclOptions {
  // Several ranks may have the same GPU, for tests. NCCL refuses that unless each is made to look like a
  // machine of its own, which then talk through sockets (NCCL_HOSTID; NCCL_SOCKET_IFNAME and NCCL_IB_DISABLE
  // unless they are set).
  bool share_device = false;
  double timeout_seconds = 600;
  // Large tensors go by copy engines within groups whose ranks reach each other's memory.
  bool copy_engines = true;
  // Of each such group. In a graph each copy and each wait for one costs tens of microseconds: segments are large.
  int64_t copy_staging_bytes = int64_t{256} << 20;
};

class NcclWorld {
 public:
  // `device` is this rank's cuda device; all three must outlive the NcclWorld, its groups may not. Throws
  // ConfigError, on every rank alike, where NCCL is not there or is another version. Collective.
  NcclWorld(MpiWorld* world, Agreement* agreement, Device* device, const NcclOptions& options);
  ~NcclWorld();
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  // As MpiWorld::Group; an NcclCommunicator. Groups of the same members in the same order share NCCL's
  // connections and working memory, for operations that follow each other on one stream; `apart`: not this
  // one, which has a stream of its own.
  std::unique_ptr<Communicator> Group(const std::vector<int64_t>& ranks, const std::string& name,
                                      bool apart = false);

  // A recording whose operations were made of the groups' calls was enqueued on `stream`: the watchdog looks
  // at it as one operation, and names the one within it that does not end.
  void Replayed(const Stream& stream);

  std::string description() const;  // "NCCL 2.28.9", "NCCL 2.28.9 and copy engines"
  size_t scratch_bytes() const;     // working memory of all groups

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yardmaster
