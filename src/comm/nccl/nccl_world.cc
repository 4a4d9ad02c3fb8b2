#include "src/comm/nccl/nccl_world.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "src/base/check.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/comm/agree.h"
#include "src/comm/nccl/copy_collectives.h"
#include "src/comm/nccl/nccl_communicator_impl.h"
#include "src/comm/nccl/nccl_library.h"
#include "src/comm/nccl/watchdog.h"
#include "src/device/cuda/cuda_stream.h"

namespace yardmaster {
namespace {

// NCCL reads these once, when the process makes its first communicator.
void LookLikeAMachineEach(const MpiWorld& world) {
  ::setenv("NCCL_HOSTID", StrCat(world.host(), "-rank", world.rank()).c_str(), 1);
  if (world.local_size() < world.size()) return;  // the sockets must reach other machines
  ::setenv("NCCL_IB_DISABLE", "1", 0);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

}  // namespace

struct NcclWorld::Impl {
  MpiWorld* world;
  CudaDevice* device;
  std::shared_ptr<OperationLog> log;
  std::map<std::pair<std::vector<int64_t>, std::string>, std::shared_ptr<NcclLink>>
      links;               // by ranks and, apart, name
  std::mutex links_mutex;  // the watchdog looks through them
  int64_t copy_staging_bytes = 0;  // 0: no copy engines
  std::string no_copies;           // why the first group without them has none, where they were asked for
  std::unique_ptr<Watchdog> watchdog;

  std::string LibraryError() {
    const std::lock_guard<std::mutex> lock(links_mutex);
    for (const auto& [key, link] : links) {
      ncclResult_t result = ncclSuccess;
      if (link->comm == nullptr || Nccl().CommGetAsyncError(link->comm, &result) != ncclSuccess) continue;
      if (result != ncclSuccess && result != ncclInProgress)
        return StrCat("NCCL says '", Nccl().GetErrorString(result),
                      "': a rank has gone or the connection to it");
    }
    return "";
  }
};

NcclWorld::NcclWorld(MpiWorld* world, Agreement* agreement, Device* device, const NcclOptions& options)
    : impl_(std::make_unique<Impl>()) {
  YM_CHECK(device->kind() == DeviceKind::kCuda, "NCCL on the ", DeviceKindName(device->kind()), " device");
  impl_->world = world;
  impl_->device = static_cast<CudaDevice*>(device);
  impl_->copy_staging_bytes = options.copy_engines ? options.copy_staging_bytes : 0;
  if (options.share_device) LookLikeAMachineEach(*world);
  AgreeOrThrow(
      *agreement, [] { Nccl(); }, "loading NCCL");
  impl_->log = std::make_shared<OperationLog>(impl_->device);
  std::unique_ptr<RollCall> roll_call = world->MakeRollCall();
  if (!roll_call) LogWarning("this MPI library allows one thread only: a rank that hangs will not be named");
  Impl* impl = impl_.get();
  impl_->watchdog =
      std::make_unique<Watchdog>(WatchdogOptions{.timeout_seconds = options.timeout_seconds,
                                                 .library_error = [impl] { return impl->LibraryError(); },
                                                 .abort = [world] { world->Abort(ExitCode::kWatchdog); }},
                                 impl_->device->index(), impl_->log, std::move(roll_call));
}

NcclWorld::~NcclWorld() = default;

std::unique_ptr<Communicator> NcclWorld::Group(const std::vector<int64_t>& ranks, const std::string& name,
                                               bool apart) {
  auto group = std::make_unique<NcclCommunicator::Impl>();
  std::unique_ptr<MpiCommunicator> control = impl_->world->Group(ranks, name);
  group->log = impl_->log;
  group->device = impl_->device;
  group->ranks.assign(ranks.begin(), ranks.end());
  group->name = name;
  group->rank = control->rank();
  group->size = control->size();
  if (group->size == 1) return std::unique_ptr<Communicator>(new NcclCommunicator(std::move(group)));

  const std::pair<std::vector<int64_t>, std::string> key(ranks, apart ? name : "");
  const auto known = impl_->links.find(key);
  if (known != impl_->links.end()) {
    group->link = known->second;
    return std::unique_ptr<Communicator>(new NcclCommunicator(std::move(group)));
  }
  const HostOperation operation(*impl_->log, name.c_str(), "connecting the group");
  const NcclLibrary& nccl = Nccl();
  ncclUniqueId id{};
  std::vector<MpiCommunicator::Transfer> sends, receives;
  if (group->rank == 0) {
    nccl.Check(nccl.GetUniqueId(&id), "ncclGetUniqueId", "connecting group " + name);
    for (int r = 1; r < group->size; ++r) sends.push_back({r, &id, sizeof(id)});
  } else {
    receives.push_back({0, &id, sizeof(id)});
  }
  control->Exchange(sends, receives, "NCCL's identifier");
  const auto link = std::make_shared<NcclLink>(impl_->device);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = name.c_str();
  nccl.Check(nccl.CommInitRankConfig(&link->comm, group->size, id, group->rank, &config),
             "ncclCommInitRankConfig", "connecting group " + name);
  if (impl_->copy_staging_bytes > 0 && !apart) {
    const std::string why_not = CopyCollectives::WhyNot(impl_->device, control.get(), impl_->world->host());
    if (why_not.empty()) {
      link->copies = std::make_unique<CopyCollectives>(impl_->device, std::move(control),
                                                       impl_->copy_staging_bytes);
    } else if (impl_->no_copies.empty()) {
      impl_->no_copies = why_not;
    }
  }
  {
    const std::lock_guard<std::mutex> lock(impl_->links_mutex);
    impl_->links[key] = link;
  }
  group->link = link;
  return std::unique_ptr<Communicator>(new NcclCommunicator(std::move(group)));
}

void NcclWorld::Replayed(const Stream& stream) { impl_->log->Replayed(CudaStream(stream)); }

std::string NcclWorld::description() const {
  bool copies = false;
  for (const auto& [key, link] : impl_->links) copies = copies || link->copies;
  return StrCat("NCCL ", Nccl().version, copies ? " and copy engines" : "",
                impl_->no_copies.empty() ? "" : StrCat(" (without copy engines: ", impl_->no_copies, ")"));
}

}  // namespace yardmaster
