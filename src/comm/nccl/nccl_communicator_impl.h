// File: src/comm/nccl/nccl_communicator_impl.h
//
// The part of NcclCommunicator that knows NCCL and CUDA. Private to src/comm.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>
#include <vector>

#include "src/comm/nccl/nccl_communicator.h"
#include "src/comm/nccl/operation_log.h"
#include "src/device/cuda/cuda_device.h"

namespace yardmaster {

class CopyCollectives;

// One NCCL communicator and its working memory: shared by the groups of a rank that have the same members,
// whose operations follow each other on one stream.
struct NcclLink {
  explicit NcclLink(CudaDevice* device_in);
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  CudaDevice* device;
  ncclComm_t comm = nullptr;
  DeviceBuffer scratch;  // kNcclScratchBytes
  std::unique_ptr<CopyCollectives> copies;  // null: NCCL carries everything
  int exceptions_at_start;
};

inline constexpr int64_t kNcclScratchBytes = int64_t{64} << 20;

struct NcclCommunicator::Impl {
  std::shared_ptr<NcclLink> link;  // null: a group of one
  std::shared_ptr<OperationLog> log;
  CudaDevice* device = nullptr;
  std::vector<int> ranks;  // world rank of each group rank
  std::string name;
  int rank = 0, size = 1;
  bool CopiesFor(const Tensor& x) const;
};

}  // namespace yardmaster
