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

#include "src/base/check.h"
#include "src/device/device.h"

namespace yardmaster {

// Elements whose squares come out of a reduction as one number.
inline constexpr int64_t kSquaresRun = 2048;

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
  // Whether sums of tensors of this type can be squared on their way; the same on every rank.
  virtual bool sums_squares(DType) const { return false; }
  // ReduceScatterSum with the same bits, and squares[i] = sum of the squares of the elements
  // [i * kSquaresRun, ...) of what this rank's own range then holds, counted from its begin: in FP64, in an
  // order that depends on the number of these elements alone. `squares`: F64 [ceil(own range / kSquaresRun)].
  // A bug where sums_squares says no.
  virtual void ReduceScatterSumAndSquares(const Stream&, const Tensor& x, const std::vector<int64_t>&,
                                          const Tensor&) {
    YM_CHECK(false, name(), ": no squares of sums of ", DTypeName(x.dtype()));
  }
  // Each rank's own range reaches all ranks. In place.
  virtual void AllGather(const Stream& stream, const Tensor& x, const std::vector<int64_t>& bounds) = 0;
  virtual void Broadcast(const Stream& stream, const Tensor& x, int root) = 0;
};

// A group of one rank: every call returns at once, bits untouched.
std::unique_ptr<Communicator> MakeSelfCommunicator(const char* name);

}  // namespace yardmaster
