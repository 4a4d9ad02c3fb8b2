// File: src/comm/nccl/nccl_communicator.h
//
// A group of ranks over NCCL, for the memory of cuda devices: the data plane of a step. NCCL only moves bytes
// here (grouped sends and receives, broadcasts); sums are added by a kernel of our own in ascending rank
// order (kernels/reduce), so that FP32 and FP64 sums have the bits of MpiCommunicator's whatever algorithm,
// ring or number of channels NCCL chooses, and a run repeats them. A reduce-scatter moves what NCCL's own
// would, (n - 1) / n of the tensor in each direction; small tensors are gathered whole. Values of other ranks
// pass through working memory of fixed size (kNcclScratchBytes), taken when the group is made. Large
// reduce-scatters and gathers go by copy engines where they can (copy_collectives.h).
//
// Everything is enqueued on the stream that is given, captured like any kernel, and logged for the watchdog.
// Tensors of the dry device are accepted and nothing is done.
#pragma once

#include <memory>
#include <vector>

#include "src/comm/communicator.h"

namespace yardmaster {

class NcclWorld;

class NcclCommunicator : public Communicator {
 public:
  ~NcclCommunicator() override;
  int rank() const override;
  int size() const override;
  const char* name() const override;
  int world_rank(int group_rank) const;

  void AllReduceSum(const Stream& stream, const Tensor& x) override;
  void AllReduceMax(const Stream& stream, const Tensor& x) override;  // a NaN wins
  void ReduceScatterSum(const Stream& stream, const Tensor& x, const std::vector<int64_t>& bounds) override;
  bool sums_squares(DType type) const override;  // F32 and F64, by NCCL and by copy engines alike
  void ReduceScatterSumAndSquares(const Stream& stream, const Tensor& x, const std::vector<int64_t>& bounds,
                                  const Tensor& squares) override;
  void AllGather(const Stream& stream, const Tensor& x, const std::vector<int64_t>& bounds) override;
  void Broadcast(const Stream& stream, const Tensor& x, int root) override;

  // A block of bytes in device memory to or from a rank of the group. Between two ranks, the i-th send meets
  // the i-th receive and both have the same size, known to the host; blocks of 0 bytes are left out on both
  // sides. To itself: a copy.
  struct Transfer {
    int peer = 0;
    void* data = nullptr;
    int64_t bytes = 0;
  };
  // All transfers at once, as one operation on the stream.
  void Exchange(const Stream& stream, const std::vector<Transfer>& sends,
                const std::vector<Transfer>& receives, const char* what);

  // NCCL's own handle and the log, for what builds on the group: nccl_communicator_impl.h.
  struct Impl;
  const Impl& handle() const { return *impl_; }

 private:
  friend class NcclWorld;
  explicit NcclCommunicator(std::unique_ptr<Impl> impl);
  void ReduceRanges(const Stream& stream, const Tensor& x, const std::vector<int64_t>& bounds,
                    double* squares);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yardmaster
