// File: src/comm/nccl/copy_collectives.h
//
// Reduce-scatter and all-gather of large tensors among ranks that reach each other's memory by CUDA IPC. Copy
// engines carry the values, so that the GEMMs beside which they travel keep their multiprocessors; only the
// additions need some. Each rank pushes values, in segments, into staging memory of the rank that wants them,
// which adds them in ascending rank order (kernels/reduce) or puts them into place.
//
// A row of staging memory belongs to a pair of ranks; there are two for each pair and direction, so that one
// is filled while the other is read. Two flags of 0 or 1 guard a row: `credit`, at the sender, says that it is
// free, `full`, at the receiver, that it holds a segment. Whoever waits for a flag sets it back. Waiting and
// setting are memory operations of the streams themselves: no kernel spins, a graph captures them, and since
// all flags end as they began it can be replayed. They have no deadline: the watchdog sees the operation.
//
// The driver may let two streams share a queue, and a graph's branches run in any order that their edges allow. So all
// must also come right one after the other: events put what a rank takes of a segment after what it sends of it, and
// what it sends after what it took two segments before, which is when the row at the other end comes free.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/ep/cuda/ipc_peers.h"
#include "src/comm/mpi/mpi_world.h"
#include "src/comm/nccl/nccl_options.h"
#include "src/device/cuda/cuda_device.h"

namespace yardmaster {

class CopyCollectives {
 public:
  // Why the ranks of `control` cannot copy so, or "", as IpcPeers::WhyNot: each must reach the
  // others' memory, and its driver must do memory operations of streams. Collective.
  static std::string WhyNot(CudaDevice* device, MpiCommunicator* control, const std::string& host);
  // Collective over the group that `control` stands for. staging_bytes: of this rank, at least 32 KiB for each
  // other rank.
  CopyCollectives(CudaDevice* device, std::unique_ptr<MpiCommunicator> control, int64_t staging_bytes);
  ~CopyCollectives();

  // Whether a tensor is worth the two events and the memory operations; the same on every rank.
  static bool Takes(const Tensor& x) { return x.bytes() >= kLeastCopiedBytes; }
  // As those of Communicator, which has checked the arguments. One at a time. squares: null, not wanted.
  void ReduceScatterSum(const Stream& stream, const Tensor& x, const std::vector<int64_t>& bounds,
                        double* squares);
  void AllGather(const Stream& stream, const Tensor& x, const std::vector<int64_t>& bounds);

 private:
  // Memory operations that a stream does one after the other.
  class Batch {
   public:
    void Await(const char* flag);                // until it is 1, and then sets it to 0
    void Raise(const char* flag);                // to 1, after all that the stream has done
    void Run(const CudaDevice& device, cudaStream_t stream, const char* what) const;
    CUresult TryRun(cudaStream_t stream) const;

   private:
    std::vector<CUstreamBatchMemOpParams> ops_;
  };
  static std::string WhyNoMemoryOperations(CudaDevice* device);
  enum Flag { kFull, kCredit };
  char* FlagAt(int at, Flag flag, int other, int slot) const;
  char* Row(int at, int from, int slot) const;
  int64_t Segment(int64_t width) const { return row_bytes_ / width; }  // elements
  // push(done, slot) and take(done, slot) for each segment of ranges that are at most so long: elements from `done` on.
  void ForSegments(cudaStream_t stream, int64_t longest, int64_t segment, const char* what,
                   const std::function<void(int64_t, int)>& push, const std::function<void(int64_t, int)>& take);
  // Bytes of this rank into its row at `to`, when that is free.
  void Push(int to, int slot, const void* from, int64_t bytes, const char* what);
  // Waits on `stream` until the rows of these ranks are full; and gives them back.
  void Take(cudaStream_t stream, const std::vector<int>& from, int slot, const char* what);
  void Give(cudaStream_t stream, const std::vector<int>& from, int slot, const char* what);

  CudaDevice* device_;
  std::unique_ptr<MpiCommunicator> control_;
  IpcPeers peers_;
  int rank_, size_;
  int64_t row_bytes_;  // whole runs of squares
  CudaStreamHandle pusher_;  // what is sent, beside the stream that adds what has come
  CudaEvent fork_, sent_, taken_[2], join_;
};

}  // namespace yardmaster
