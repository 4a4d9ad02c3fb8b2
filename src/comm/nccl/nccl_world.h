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
#include "src/comm/nccl/nccl_options.h"
#include "src/device/device.h"

namespace yardmaster {

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

  // "NCCL 2.28.9", "NCCL 2.28.9 and copy engines"; with why a group has none, where they were asked for.
  std::string description() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yardmaster
