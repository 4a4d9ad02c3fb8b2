#include "src/comm/ep/cuda/virtual_peers.h"

#include <cstdlib>

namespace yardmaster {

class VirtualPeers::Table : public PeerTable {
 public:
  Table(VirtualPeers* peers, int rank, int size) : PeerTable(rank, size), peers_(peers) {}

 private:
  PeerTable::Region Map(size_t bytes) override {
    const Slices& slices = peers_->Region(static_cast<size_t>(regions()), bytes);
    PeerTable::Region region{slices.bytes, {}};
    for (int p = 0; p < size(); ++p) region.base.push_back(slices.base + static_cast<size_t>(p) * slices.bytes);
    return region;
  }
  VirtualPeers* peers_;
};

VirtualPeers::VirtualPeers(Device* device, int ranks) : device_(device) {
  YM_CHECK(ranks >= 1 && ranks <= 32, ranks, " virtual ranks: a GPU has 32 hardware queues");
  for (int p = 0; p < ranks; ++p) tables_.push_back(std::make_unique<Table>(this, p, ranks));
}

VirtualPeers::~VirtualPeers() {
  for (const Slices& s : regions_) device_->Free(s.base);
}

const VirtualPeers::Slices& VirtualPeers::Region(size_t i, size_t bytes) {
  constexpr size_t kAlignment = 4096;
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (i == regions_.size())
    regions_.push_back({static_cast<char*>(device_->Allocate(rounded * static_cast<size_t>(size()))), rounded});
  YM_CHECK(i < regions_.size() && regions_[i].bytes == rounded, "region ", i, " of ", bytes, " bytes where another rank has ",
           i < regions_.size() ? regions_[i].bytes : 0);
  return regions_[i];
}

void VirtualPeers::PrepareProcess() {
  static_cast<void>(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0));
  static_cast<void>(setenv("CUDA_MODULE_LOADING", "EAGER", 0));
}

}  // namespace yardmaster
