// File: src/comm/nccl/nccl_options.h
#pragma once

#include <cstdint>

namespace yardmaster {

// Bytes of the smallest tensor that copy engines carry: a copy has events and memory operations
// around it.
inline constexpr int64_t kLeastCopiedBytes = int64_t{64} << 10;

struct NcclOptions {
  // Several ranks may have the same GPU, for tests. NCCL refuses that unless each is made to look
  // like a machine of its own, which then talk through sockets (NCCL_HOSTID; NCCL_SOCKET_IFNAME and
  // NCCL_IB_DISABLE unless they are set).
  bool share_device = false;
  double timeout_seconds = 600;
  // Large tensors go by copy engines within groups whose ranks reach each other's memory.
  bool copy_engines = true;
  // Of each such group. In a graph each copy and each wait for one costs tens of microseconds:
  // segments are large.
  int64_t copy_staging_bytes = int64_t{256} << 20;
};

}  // namespace yardmaster
