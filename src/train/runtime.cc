#include "src/train/runtime.h"

#include <algorithm>
#include <thread>

#include "src/base/strings.h"
#include "src/comm/agree.h"
#include "src/comm/ep/local_dispatcher.h"
#include "src/comm/ep/mpi_dispatcher.h"
#include "src/config/supported.h"
#include "src/config/validate.h"

namespace yardmaster {
namespace {

// parallel.ep = 0 (auto): the largest divisor of dp up to 2 that also divides the experts.
int64_t ResolveEp(const Config& config, int64_t world) {
  if (config.parallel.ep > 0) return config.parallel.ep;
  const int64_t dp = world / config.parallel.pp, experts = config.model.n_routed_experts;
  return dp % 2 == 0 && experts > 0 && experts % 2 == 0 ? 2 : 1;
}

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
  return Mesh(world, loaded.config.parallel.pp, ResolveEp(loaded.config, world));
}

}  // namespace

std::string WhyNotCuda(const Config& config, int ranks, const CudaStatus& status) {
  if (status.usable == 0) return status.reason;
  if (ranks > 1) return StrCat(ranks, " ranks: this version joins ranks of the cpu device only");
  const std::vector<std::string> missing = MissingOnCuda(config);
  return missing.empty() ? "" : missing[0];
}

DeviceKind ChooseDevice(const Config& config, int ranks, std::string* reason) {
  const bool cpu_computes = config.precision.compute == "fp32" || config.precision.compute == "fp64";
  *reason = StrCat("runtime.device: ", config.runtime.device);
  DeviceKind kind = DeviceKind::kCpu;
  std::string why_not;
  if (config.runtime.device != "cpu") {
    const CudaStatus status = CudaAvailability();
    why_not = WhyNotCuda(config, ranks, status);
    if (why_not.empty()) kind = DeviceKind::kCuda;
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
  const DeviceKind kind = ChooseDevice(config, size(), &device_reason_);
  const int local_size = world ? world->local_size() : 1;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  CpuOptions options;
  options.threads =
      config.runtime.threads > 0 ? static_cast<int>(config.runtime.threads) : std::max(1, cores / local_size);
  device_ = kind == DeviceKind::kCuda ? MakeCudaDevice({.index = 0, .rank = rank()}) : MakeCpuDevice(options);

  if (world) world->set_timeout_seconds(config.runtime.timeout_seconds);
  if (!world) {
    agreement_ = std::make_unique<SingleProcess>();
    stage_ = MakeSelfCommunicator("stage");
    dp_ = MakeSelfCommunicator("dp");
    edp_ = MakeSelfCommunicator("edp");
  } else {
    const int64_t rank = world->rank();
    agreement_ = world->MakeAgreement();
    stage_ = world->Group(mesh_.DpGroup(rank), "stage");
    dp_ = world->Group(mesh_.DpGroup(rank), "dp");
    edp_ = world->Group(mesh_.EdpGroup(rank), "edp");
  }
  if (config.model.n_routed_experts == 0) return;
  if (mesh_.ep() == 1) {
    dispatcher_ =
        std::make_unique<LocalDispatcher>(config.model.n_routed_experts, config.model.num_experts_per_tok);
    return;
  }
  ep_ = world->Group(mesh_.EpGroup(world->rank()), "ep");
  MpiDispatcherOptions ep;
  ep.num_experts = config.model.n_routed_experts;
  ep.top_k = config.model.num_experts_per_tok;
  ep.ep = static_cast<int>(mesh_.ep());
  ep.ep_index = ep_->rank();
  ep.ragged_buffer_factor = config.ep.ragged_buffer_factor;
  ep.mode = config.ep.mode == "deduplicated" ? DispatchMode::kDeduplicated : DispatchMode::kExpanded;
  dispatcher_ = std::make_unique<MpiDispatcher>(ep, ep_.get());
}

}  // namespace yardmaster
