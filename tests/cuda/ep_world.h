// Virtual ranks of an expert-parallel group on one GPU, each with its stream, arenas and dispatcher.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/ep/cuda/peer_dispatcher.h"
#include "src/comm/ep/cuda/virtual_peers.h"
#include "src/device/arena.h"
#include "src/device/cuda/cuda_device.h"
#include "src/device/cuda/make_cuda_device.h"

namespace yardmaster::testing {

class EpWorld {
 public:
  // Arenas of `saved_bytes` and `work_bytes` for each rank, in peer memory.
  EpWorld(Device* device, int ranks, size_t saved_bytes, size_t work_bytes)
      : device_(static_cast<CudaDevice*>(device)), peers_(device, ranks) {
    for (int p = 0; p < ranks; ++p) {
      auto rank = std::make_unique<Rank>(device, peers_.table(p));
      device_->Check(cudaStreamCreateWithFlags(rank->handle.address(), cudaStreamNonBlocking), "test", "stream");
      ranks_.push_back(std::move(rank));
    }
    for (const auto& rank : ranks_) rank->saved.Commit(saved_bytes);
    for (const auto& rank : ranks_) rank->work.Commit(work_bytes);
  }

  // As many blocks as surely fit on the GPU together, with SMs left for what is between.
  int Blocks() const { return std::max(1, (device_->properties().multiprocessors - 4) / size()); }

  // New dispatchers for all ranks; arenas are empty again.
  void Make(EpOptions options, double deadline_seconds = 5, int blocks = 0) {
    for (int p = 0; p < size(); ++p) {
      Rank& r = rank(p);
      r.saved.Release(0);
      r.work.Release(0);
      r.handle_ = RoutingHandle();
      options.ep = size();
      options.ep_index = p;
      r.dispatcher = std::make_unique<PeerDispatcher>(
          options, PeerOptions{.num_sms = blocks > 0 ? blocks : Blocks(), .deadline_seconds = deadline_seconds}, peers_.table(p),
          device_);
    }
  }

  struct Rank {
    Rank(Device* device, PeerTable* table) : memory(device, table), saved("saved", &memory), work("work", &memory) {}
    CudaStreamHandle handle;
    PeerMemory memory;
    Arena saved, work;
    RoutingHandle handle_;
    std::unique_ptr<PeerDispatcher> dispatcher;
  };

  int size() const { return peers_.size(); }
  Rank& rank(int p) { return *ranks_[static_cast<size_t>(p)]; }
  Stream stream(int p) { return Stream(device_, rank(p).handle.get()); }
  cudaStream_t cuda_stream(int p) { return rank(p).handle.get(); }
  CudaDevice& device() { return *device_; }
  void Wait() { device_->Check(cudaDeviceSynchronize(), "test", "cudaDeviceSynchronize"); }

  // A tensor in the rank's saved arena.
  template <class T>
  Tensor Make(int p, const Shape& shape, const std::vector<T>& values) {
    const Tensor t = rank(p).saved.Allocate("test tensor", DTypeOf<T>::value, shape);
    YM_CHECK_EQ(t.elements(), static_cast<int64_t>(values.size()));
    Set(t, values);
    return t;
  }
  Tensor Poisoned(int p, DType type, const Shape& shape) {
    const Tensor t = rank(p).saved.Allocate("test tensor", type, shape);
    Poison(t);
    return t;
  }
  // The ranks' streams do not wait for the legacy stream, on which what the host writes may still be under way when the
  // call returns: whatever is given to them afterwards finds it there.
  void Poison(const Tensor& t) {
    device_->Check(cudaMemset(t.data(), 0xFF, static_cast<size_t>(t.bytes())), "test", "cudaMemset");
    WaitForHostWrites();
  }
  template <class T>
  void Set(const Tensor& t, const std::vector<T>& values) {
    Write(t, values.data(), values.size() * sizeof(T));
  }
  void Write(const Tensor& t, const void* values, size_t bytes) {
    if (bytes == 0) return;
    YM_CHECK_LE(static_cast<int64_t>(bytes), t.bytes());
    device_->Check(cudaMemcpy(t.data(), values, bytes, cudaMemcpyHostToDevice), "test", "copy");
    WaitForHostWrites();
  }
  template <class T>
  std::vector<T> Get(const Tensor& t, int64_t count = -1) {
    std::vector<T> v(static_cast<size_t>(count < 0 ? t.elements() : count));
    YM_CHECK_LE(static_cast<int64_t>(v.size()), t.elements());
    if (!v.empty())
      device_->Check(cudaMemcpy(v.data(), t.as<T>(), v.size() * sizeof(T), cudaMemcpyDeviceToHost), "test", "copy");
    return v;
  }
  void WaitForHostWrites() {
    device_->Check(cudaStreamSynchronize(cudaStreamLegacy), "test", "cudaStreamSynchronize");
  }
  // Empty, or what failed first.
  std::string Failures() {
    std::string all;
    for (int p = 0; p < size(); ++p) {
      if (const auto failure = rank(p).dispatcher->Failure()) all += failure->what + "\n";
    }
    return all;
  }

 private:
  CudaDevice* device_;
  VirtualPeers peers_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace yardmaster::testing
