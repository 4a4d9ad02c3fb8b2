// File: src/comm/ep/cuda/peer_table.h
//
// Memory that the other ranks of an expert-parallel group can read and write. A table hands out regions; of
// every region it knows at which address this process sees each rank's copy. That is all that dispatch and
// combine (peer_dispatcher.h) need, whatever the way: slices of one allocation (virtual_peers.h), CUDA IPC
// between processes, NCCL symmetric windows between GPUs.
//
// State: the regions, in the order of Allocate, which is the same on every rank. Addresses never change, so
// that captured graphs stay valid. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/check.h"
#include "src/device/device.h"

namespace yardmaster {

class PeerTable {
 public:
  static constexpr int kMaxPeers = 64;  // a group within peer reach: kernels take the addresses as arguments

  struct Region {
    size_t bytes = 0;         // of this rank
    std::vector<char*> base;  // [size]: device address, in this process, of each rank's memory
  };
  // Bytes of this rank's memory as its peers know them.
  struct Place {
    int region = -1;
    int64_t offset = 0;
  };

  PeerTable(int rank, int size) : rank_(rank), size_(size) {
    YM_CHECK(size >= 1 && size <= kMaxPeers && rank >= 0 && rank < size, "rank ", rank, " of ", size,
             "; at most ", kMaxPeers, " ranks reach each other's memory");
  }
  virtual ~PeerTable() = default;
  PeerTable(const PeerTable&) = delete;
  PeerTable& operator=(const PeerTable&) = delete;

  int rank() const { return rank_; }  // in the group, as is `peer` everywhere
  int size() const { return size_; }

  // Collective, at start only: every rank of the group calls in the same order (bytes may differ; a way that
  // wants one size takes the largest). Zeroed, at least 256-byte aligned; lives as long as the table, whose
  // destruction no running kernel may outlive, on any rank. Throws Error as Device::Allocate, on all ranks.
  void* Allocate(size_t bytes) {
    regions_.push_back(Map(bytes));
    const Region& r = regions_.back();
    YM_CHECK(static_cast<int>(r.base.size()) == size_ && r.bytes >= bytes, r.base.size(), " of ", size_,
             " addresses for ", r.bytes, " of ", bytes, " bytes");
    return r.base[static_cast<size_t>(rank_)];
  }

  int regions() const { return static_cast<int>(regions_.size()); }
  const Region& region(int i) const { return regions_[static_cast<size_t>(i)]; }

  // Where [p, p + bytes) of this rank lies; nothing if peers cannot reach all of it.
  std::optional<Place> Find(const void* p, size_t bytes) const {
    const auto at = reinterpret_cast<uintptr_t>(p);
    for (int i = 0; i < regions(); ++i) {
      const auto begin = reinterpret_cast<uintptr_t>(region(i).base[static_cast<size_t>(rank_)]);
      if (at >= begin && at + bytes <= begin + region(i).bytes)
        return Place{i, static_cast<int64_t>(at - begin)};
    }
    return std::nullopt;
  }

 protected:
  // Takes the memory and exchanges addresses. The implementation owns it, and closes and frees it when the
  // table goes.
  virtual Region Map(size_t bytes) = 0;

 private:
  int rank_, size_;
  std::vector<Region> regions_;
};

// A device whose memory comes from a peer table, for arenas: Arena("saved", &peer_memory) has rows that the
// peers of the group write. Everything else is the device's own. Memory goes with the table.
class PeerMemory : public Device {
 public:
  PeerMemory(Device* device, PeerTable* table) : device_(device), table_(table) {}
  DeviceKind kind() const override { return device_->kind(); }
  std::string description() const override { return device_->description(); }
  void* Allocate(size_t bytes) override { return table_->Allocate(bytes); }
  void Free(void*) noexcept override {}
  void CopyToHost(void* host, const void* device, size_t bytes) override {
    device_->CopyToHost(host, device, bytes);
  }
  void CopyFromHost(void* device, const void* host, size_t bytes) override {
    device_->CopyFromHost(device, host, bytes);
  }
  void Synchronize(void* stream_handle) override { device_->Synchronize(stream_handle); }
  size_t library_bytes() const override { return device_->library_bytes(); }
  DeviceKind target() const override { return device_->target(); }

 private:
  Device* device_;
  PeerTable* table_;
};

}  // namespace yardmaster
