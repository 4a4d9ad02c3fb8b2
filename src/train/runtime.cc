#include "src/train/runtime.h"

#include <algorithm>
#include <thread>

#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/comm/agree.h"
#include "src/comm/ep/local_dispatcher.h"
#include "src/comm/ep/mpi_dispatcher.h"
#include "src/config/supported.h"
#include "src/config/validate.h"

#if YM_HAVE_CUDA
#include "src/comm/ep/cuda/make_peers.h"
#include "src/comm/ep/cuda/nccl_dispatcher.h"
#include "src/comm/ep/cuda/peer_dispatcher.h"
#endif

namespace yardmaster {
namespace {

void CheckLayout(const LoadedConfig& loaded, int world) {
  Issues issues;
  ValidateLayout(loaded.config, world, loaded.places, issues);
  try {
    issues.ThrowIfAny();
  } catch (const Error& e) {  // every rank finds the same: told once
    throw AgreedError(e.code(), e.what(), 0);
  }
}

Mesh MakeMesh(const LoadedConfig& loaded, int world) {
  CheckLayout(loaded, world);
  return Mesh(world, loaded.config.parallel.pp, ExpertParallelRanks(loaded.config, world));
}

}  // namespace

int64_t ExpertParallelRanks(const Config& config, int64_t world) {
  if (config.parallel.ep > 0) return config.parallel.ep;
  const int64_t dp = world / config.parallel.pp, experts = config.model.n_routed_experts;
  return dp % 2 == 0 && experts > 0 && experts % 2 == 0 ? 2 : 1;
}

EpOptions DispatchOptions(const Config& config, int64_t ep, int64_t ep_index) {
  EpOptions out;
  out.num_experts = config.model.n_routed_experts;
  out.top_k = config.model.num_experts_per_tok;
  out.ep = static_cast<int>(ep);
  out.ep_index = static_cast<int>(ep_index);
  out.ragged_buffer_factor = config.ep.ragged_buffer_factor;
  out.mode = config.ep.mode == "deduplicated" ? DispatchMode::kDeduplicated : DispatchMode::kExpanded;
  if (config.ep.mode == "auto")
    out.mode = ModeFor(out.ep, out.num_experts, out.top_k, config.model.n_group, config.model.topk_group);
  return out;
}

std::string WhyNotCuda(const Config& config, int local_ranks, const CudaStatus& status) {
  if (status.usable == 0) return status.reason;
  if (local_ranks > status.usable && !config.runtime.share_device) {
    return StrCat(local_ranks, " ranks on this machine, which has ", status.usable,
                  status.usable == 1 ? " GPU" : " GPUs", " (runtime.share_device lets ranks share one)");
  }
  return "";
}

DeviceKind ChooseDevice(const Config& config, int local_ranks, std::string* reason) {
  // Not where the cpu was asked for: to look for GPUs starts the driver.
  return ChooseDevice(config, local_ranks, config.runtime.device == "cpu" ? CudaStatus{} : CudaAvailability(), reason);
}

DeviceKind ChooseDevice(const Config& config, int local_ranks, const CudaStatus& status, std::string* reason) {
  const bool cpu_computes = config.precision.compute != "bf16";
  *reason = StrCat("runtime.device: ", config.runtime.device);
  DeviceKind kind = DeviceKind::kCpu;
  std::string why_not;
  if (config.runtime.device != "cpu") {
    why_not = WhyNotCuda(config, local_ranks, status);
    if (why_not.empty() && config.runtime.device == "auto") {
      const std::vector<std::string> cannot = UnsupportedOnCuda(config);
      if (!cannot.empty()) why_not = cannot.front();
    }
    if (why_not.empty()) {
      for (const int capability : status.capabilities) {
        const std::string refused = UnsupportedOnCapability(config, capability);
        if (!refused.empty())
          throw ConfigError(refused, "precision.compute", "mxfp8 and bf16 run on that GPU, every recipe on the cpu device");
      }
      kind = DeviceKind::kCuda;
    }
    if (config.runtime.device == "auto") *reason = why_not.empty() ? status.reason : why_not;
  }
  if (kind != DeviceKind::kCuda && config.runtime.device == "cuda") {
    throw ConfigError(StrCat("no cuda device: ", why_not), "runtime.device",
                      "set runtime.device to cpu or auto");
  }
  if (kind == DeviceKind::kCpu && !cpu_computes) {
    throw ConfigError(StrCat("the cpu device does not compute in ", config.precision.compute,
                             why_not.empty() ? "" : StrCat("; no cuda device: ", why_not)),
                      "precision.compute", "use fp32 or fp64, or a machine with a GPU");
  }
  return kind;
}

Runtime::Runtime(const LoadedConfig& loaded, MpiWorld* world)
    : world_(world), mesh_(MakeMesh(loaded, world ? world->size() : 1)) {
  const Config& config = loaded.config;
  if (world) world->set_timeout_seconds(config.runtime.timeout_seconds);
  agreement_ = world ? world->MakeAgreement() : std::make_unique<SingleProcess>();
  MakeDevice(config);
  stage_ = Group(mesh_.DpGroup(rank()), "stage");
  dp_ = Group(mesh_.DpGroup(rank()), "dp");
  edp_ = Group(mesh_.EdpGroup(rank()), "edp");
  if (config.model.n_routed_experts > 0) dispatcher_ = MakeDispatcher(config);
}

void Runtime::MakeDevice(const Config& config) {
  if (size() > 1 && !config.runtime.share_device) UseManyQueues();
  const int local_size = ranks_on_machine();
  DeviceKind kind = DeviceKind::kCpu;
  const auto choose = [&] { kind = ChooseDevice(config, local_size, &device_reason_); };
  if (!world_) {
    choose();
  } else {
    AgreeOrThrow(*agreement_, choose, "choosing a device");
    const std::vector<std::string> kinds = agreement_->AllGather(DeviceKindName(kind));
    for (size_t r = 0; r < kinds.size(); ++r) {
      if (kinds[r] == kinds[0]) continue;
      throw AgreedError(
          ExitCode::kConfig,
          ConfigError(StrCat("rank 0 would compute on the ", kinds[0], " device, rank ", r, " on ", kinds[r]),
                      "runtime.device", "say which: cpu or cuda")
              .what(),
          static_cast<int>(r));
    }
  }
  if (kind == DeviceKind::kCpu) {
    const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    CpuOptions options;
    options.threads = config.runtime.threads > 0 ? static_cast<int>(config.runtime.threads)
                                                 : std::max(1, cores / local_size);
    device_ = MakeCpuDevice(options);
    ranks_on_device_ = local_size;
    return;
  }
  const int gpus = CudaAvailability().usable, index = world_ ? world_->local_rank() % gpus : 0;
  ranks_on_device_ = (local_size - index + gpus - 1) / gpus;
  const auto make = [&] { device_ = MakeCudaDevice({.index = index, .rank = rank()}); };
  if (!world_) return make();
  AgreeOrThrow(*agreement_, make, "starting the GPU");
  if (size() == 1) return;
  const bool shared = local_size > gpus;
  if (shared)
    LogInfo(StrCat("  ", local_size, " ranks share ", gpus, gpus == 1 ? " GPU" : " GPUs",
                   ": for tests; what NCCL carries between them goes through sockets"));
  nccl_ = std::make_unique<NcclWorld>(
      world_, agreement_.get(), device_.get(),
      NcclOptions{.share_device = shared,
                  .timeout_seconds = config.runtime.timeout_seconds,
                  .copy_engines = config.runtime.copy_engines});
}

std::unique_ptr<Communicator> Runtime::Group(const std::vector<int64_t>& ranks, const char* name) {
  if (nccl_) return nccl_->Group(ranks, name);
  if (world_ && device_->kind() == DeviceKind::kCpu) return world_->Group(ranks, name);
  return MakeSelfCommunicator(name);
}

std::unique_ptr<Dispatcher> Runtime::MakeDispatcher(const Config& config) {
  if (mesh_.ep() == 1)
    return std::make_unique<LocalDispatcher>(config.model.n_routed_experts, config.model.num_experts_per_tok);
  const std::vector<int64_t> ep_ranks = mesh_.EpGroup(rank());
  ep_ = nccl_ ? nccl_->Group(ep_ranks, "ep", /*apart=*/true) : Group(ep_ranks, "ep");
  const EpOptions ep = DispatchOptions(config, ep_->size(), ep_->rank());
  if (nccl_) return MakeCudaDispatcher(config, ep);
  ep_transport_ = ep.expanded() ? "MPI" : "MPI, deduplicated";
  return std::make_unique<MpiDispatcher>(ep, static_cast<MpiCommunicator*>(ep_.get()));
}

#if YM_HAVE_CUDA
std::unique_ptr<Dispatcher> Runtime::MakeCudaDispatcher(const Config& config, EpOptions ep) {
  const std::string& wanted = config.ep.transport;
  if (wanted != "nccl" && wanted != "nccl_exact") {
    ep_control_ = world_->Group(mesh_.EpGroup(rank()), "ep");
    const PeersWanted peers{.way = wanted == "ipc"       ? PeersWanted::Way::kIpc
                                   : wanted == "windows" ? PeersWanted::Way::kWindows
                                                         : PeersWanted::Way::kAny,
                            .host = world_->host()};
    std::string how;
    peers_ = MakePeers(peers, device_.get(), ep_.get(), ep_control_.get(), &how);
    if (peers_) {
      ep_transport_ = StrCat("peer memory (", how, "), ", config.ep.num_sms, " multiprocessors",
                             ep.expanded() ? "" : ", deduplicated");
      peer_memory_ = std::make_unique<PeerMemory>(device_.get(), peers_.get());
      return std::make_unique<PeerDispatcher>(ep,
                                              PeerOptions{.num_sms = static_cast<int>(config.ep.num_sms),
                                                          .deadline_seconds = config.runtime.timeout_seconds},
                                              peers_.get(), device_.get());
    }
    // Every rank of the group has found the same; other groups may differ.
    if (wanted != "auto")
      throw ConfigError(StrCat("no peer memory: ", how), "ep.transport", "set ep.transport to auto or nccl");
    LogInfo(StrCat("  no peer memory: ", how));
  }
  if (config.ep.mode == "auto") ep.mode = DispatchMode::kExpanded;
  const bool exact = wanted == "nccl_exact";
  ep_transport_ = exact ? "NCCL, exact counts" : "NCCL, fixed segments";
  return std::make_unique<NcclDispatcher>(ep, exact, static_cast<NcclCommunicator*>(ep_.get()));
}
#else
std::unique_ptr<Dispatcher> Runtime::MakeCudaDispatcher(const Config&, EpOptions) { return nullptr; }
#endif

void Runtime::NoteReplay() {
  if (nccl_) nccl_->Replayed(Stream(device_.get()));
}

std::string Runtime::transport() const {
  if (size() == 1) return "";
  const std::string collectives = nccl_ ? nccl_->description() : "MPI";
  return StrCat("collectives by ", collectives,
                ep_transport_.empty() ? "" : "; dispatch by " + ep_transport_);
}

}  // namespace yardmaster
