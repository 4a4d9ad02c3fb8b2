// File: src/device/cuda/make_cuda_device.h
//
// The way to the cuda device for code that sees no CUDA header. These functions exist in every build.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/device/device.h"

namespace yardmaster {

struct CudaStatus {
  int usable = 0;      // GPUs that this build can run on
  std::string reason;  // what they are, or why there are none: one sentence for the start-up summary
  std::vector<int> capabilities = {};  // of each of them: 90 for compute capability 9.0
};
// Never throws; works without a driver (nothing links to libcuda).
CudaStatus CudaAvailability();

// Before all else that touches the driver: a queue of the driver's for each stream, so that one that waits for another
// rank holds up no other. Not where ranks share a GPU: MPS has few queues for all its clients.
void UseManyQueues();

struct CudaOptions {
  int index = 0;  // among the visible devices
  int rank = 0;   // named in errors
};
// Throws Error(kConfig) with CudaAvailability()'s reason when there is no such device. The device is made current for
// the calling thread and stays so in every call.
std::unique_ptr<Device> MakeCudaDevice(const CudaOptions& options);

}  // namespace yardmaster
