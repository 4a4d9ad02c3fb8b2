// File: src/comm/communicator.h
//
// Collectives of a group of ranks: the data plane of a step (tensors in device memory, on a stream) behind
// one interface for MPI (cpu device), NCCL (cuda) and a world of one. Every sum adds in ascending rank order
// in the tensor's own type, so that the same layout gives the same bits. Control-plane agreement (strings,
// errors) is base/agreement.h.
//
// All calls are collective over the group and must come in the same order on each rank. They may return
// before they are done (cuda); the stream orders them.
#pragma once

#include <memory>
#include <vector>

#include "src/device/device.h"

namespace yardmaster {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // within the group
  virtual int size() const = 0;
  virtual const char* name() const = 0;  // "world", "dp", "ep", "edp": for messages

  // x = sum (max) over ranks; contiguous F32, F64, I32, I64.
  virtual void AllReduceSum(const Stream& stream, const Tensor& x) = 0;
  virtual void AllReduceMax(const Stream& stream, const Tensor& x) = 0;
  // Element ranges [bounds[r], bounds[r+1]) of the contiguous tensor x: afterwards this rank's own range
  // holds the sum over ranks of that range; the rest of x is undefined. In place.
  virtual void ReduceScatterSum(const Stream& stream, const Tensor& x,
                                const std::vector<int64_t>& bounds) = 0;
  // Each rank's own range reaches all ranks. In place.
  virtual void AllGather(const Stream& stream, const Tensor& x, const std::vector<int64_t>& bounds) = 0;
  virtual void Broadcast(const Stream& stream, const Tensor& x, int root) = 0;
};

// A group of one rank: every call returns at once, bits untouched.
std::unique_ptr<Communicator> MakeSelfCommunicator(const char* name);

}  // namespace yardmaster
