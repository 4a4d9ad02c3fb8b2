// File: src/comm/mpi/mpi_communicator.h
//
// A group of ranks over MPI, for host memory: the data plane of the cpu device. Tensors of the dry
// device are accepted and nothing is done.
//
// Sums never use MPI_Reduce, whose order depends on sizes and algorithms: each rank receives the
// others' values of its range and adds them itself in ascending group rank, beginning with rank 0's
// value. MAX lets a NaN win. Working memory is host memory of its own, at most about 64 MiB a
// group, kept between calls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/communicator.h"

namespace yardmaster {

struct MpiState;  // of the process; mpi_call.h
class MpiWorld;

class MpiCommunicator : public Communicator {
 public:
  ~MpiCommunicator() override;
  int rank() const override;
  int size() const override;
  const char* name() const override;
  int world_rank(int group_rank) const;

  void AllReduceSum(const Stream& stream, const Tensor& x) override;
  void AllReduceMax(const Stream& stream, const Tensor& x) override;
  void ReduceScatterSum(const Stream& stream, const Tensor& x,
                        const std::vector<int64_t>& bounds) override;
  void AllGather(const Stream& stream, const Tensor& x,
                 const std::vector<int64_t>& bounds) override;
  void Broadcast(const Stream& stream, const Tensor& x, int root) override;

  // A block of bytes to or from a rank of the group. Between two ranks, the i-th send meets the
  // i-th receive and both have the same size; blocks of 0 bytes are left out on both sides. To
  // itself: a copy.
  struct Transfer {
    int peer = 0;
    void* data = nullptr;
    int64_t bytes = 0;
  };
  // All transfers at once; returns when they are done. `what` is for messages. Collective in order,
  // but ranks without a transfer between them do not wait for each other.
  void Exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives,
                const char* what);

 private:
  friend class MpiWorld;
  struct Impl;
  explicit MpiCommunicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yardmaster
