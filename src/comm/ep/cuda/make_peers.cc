#include "src/comm/ep/cuda/make_peers.h"

#include "kernels/peers/store_rows.h"
#include "src/base/check.h"
#include "src/base/strings.h"
#include "src/comm/ep/cuda/ipc_peers.h"
#include "src/comm/ep/cuda/nccl_window_peers.h"
#include "src/comm/nccl/nccl_communicator.h"
#include "src/device/cuda/cuda_stream.h"

namespace yardmaster {

std::unique_ptr<PeerTable> MakePeers(const PeersWanted& wanted, Device* device, Communicator* group,
                                     MpiCommunicator* control, std::string* how) {
  YM_CHECK(device->kind() == DeviceKind::kCuda, "peer memory on the ", DeviceKindName(device->kind()),
           " device");
  auto* cuda = static_cast<CudaDevice*>(device);
  auto* nccl = static_cast<NcclCommunicator*>(group);
  how->clear();
  if (group->size() > PeerTable::kMaxPeers) {
    *how = StrCat(group->size(), " ranks; at most ", PeerTable::kMaxPeers, " reach each other's memory");
    return nullptr;
  }
  if (wanted.way != PeersWanted::Way::kIpc) {
    *how = NcclWindowPeers::WhyNot(nccl);
    if (how->empty()) {
      *how = "NCCL's windows";
      return std::make_unique<NcclWindowPeers>(cuda, nccl, control);
    }
    if (wanted.way == PeersWanted::Way::kWindows) return nullptr;
  }
  const std::string why_not = IpcPeers::WhyNot(cuda, control, wanted.host);
  if (!why_not.empty()) {
    *how = how->empty() ? why_not : StrCat(*how, "; ", why_not);
    return nullptr;
  }
  *how = "CUDA IPC";
  return std::make_unique<IpcPeers>(cuda, control);
}

void StoreToPeer(const Stream& stream, const void* from, void* to, int64_t bytes, int sms) {
  YM_CUDA_CHECK(stream, "StoreToPeer", StoreBytes(from, to, bytes, sms, CudaStream(stream)));
}

}  // namespace yardmaster
