#include "src/train/rank_plan.h"

#include <memory>
#include <string>

#include "src/base/check.h"
#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/comm/communicator.h"
#include "src/comm/ep/cuda/peer_dispatcher.h"
#include "src/comm/ep/local_dispatcher.h"
#include "src/comm/ep/mpi_dispatcher.h"
#include "src/parallel/mesh.h"
#include "src/train/runtime.h"

#if YM_HAVE_CUDA
#include "src/comm/ep/cuda/nccl_dispatcher.h"
#endif

namespace yardmaster {
namespace {

// A group of which rank 0 alone is there, and only to plan.
class PlannedGroup : public Communicator {
 public:
  PlannedGroup(const char* name, int64_t size) : name_(name), size_(static_cast<int>(size)) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  const char* name() const override { return name_; }
  void AllReduceSum(const Stream& stream, const Tensor&) override { Check(stream); }
  void AllReduceMax(const Stream& stream, const Tensor&) override { Check(stream); }
  void ReduceScatterSum(const Stream& stream, const Tensor&, const std::vector<int64_t>& bounds) override {
    Check(stream, bounds);
  }
  void AllGather(const Stream& stream, const Tensor&, const std::vector<int64_t>& bounds) override {
    Check(stream, bounds);
  }
  void Broadcast(const Stream& stream, const Tensor&, int) override { Check(stream); }

 private:
  void Check(const Stream& stream) const { YM_CHECK(stream.dry(), name_, ": a group that is there to plan"); }
  void Check(const Stream& stream, const std::vector<int64_t>& bounds) const {
    Check(stream);
    YM_CHECK_EQ(bounds.size(), static_cast<size_t>(size_) + 1, name_);
  }
  const char* name_;
  int size_;
};

std::unique_ptr<Dispatcher> PlannedDispatcher(const Config& config, int64_t ep, DeviceKind device) {
  const ModelConfig& m = config.model;
  if (m.n_routed_experts == 0) return nullptr;
  if (ep == 1) return std::make_unique<LocalDispatcher>(m.n_routed_experts, m.num_experts_per_tok);
  EpOptions options = DispatchOptions(config, ep, 0);
  if (device != DeviceKind::kCuda) return std::make_unique<MpiDispatcher>(options, nullptr);
  const std::string& transport = config.ep.transport;
  if (transport != "nccl" && transport != "nccl_exact") {
    const PeerOptions peer{.num_sms = static_cast<int>(config.ep.num_sms),
                           .deadline_seconds = config.runtime.timeout_seconds};
    return std::make_unique<PeerDispatcher>(options, peer, nullptr, nullptr);
  }
#if YM_HAVE_CUDA
  if (config.ep.mode == "auto") options.mode = DispatchMode::kExpanded;
  return std::make_unique<NcclDispatcher>(options, transport == "nccl_exact", nullptr);
#else
  throw ConfigError(StrCat("a build without CUDA plans no memory for ", transport), "ep.transport",
                    "ask with ep.transport: peer, or a build with CUDA");
#endif
}

}  // namespace

std::vector<ArenaSize> PlanOfRank(const Config& config, int64_t ranks, DeviceKind device) {
  const Mesh mesh(ranks, config.parallel.pp, ExpertParallelRanks(config, ranks));
  PlannedGroup stage("stage", mesh.dp()), dp("dp", mesh.dp()), edp("edp", mesh.edp());
  const std::unique_ptr<Dispatcher> dispatcher = PlannedDispatcher(config, mesh.ep(), device);
  return Engine::Plan(EngineMode::kTraining, config, {&stage, &dp, &edp}, dispatcher.get(), device);
}

}  // namespace yardmaster
