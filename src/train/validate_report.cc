#include "src/train/validate_report.h"

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/comm/communicator.h"
#include "src/comm/ep/local_dispatcher.h"
#include "src/config/parameters.h"
#include "src/config/supported.h"
#include "src/train/runtime.h"
#include "src/train/summary.h"

namespace yardmaster {
namespace {

// The device that a run of one rank on this machine would take; and why, or that it would take none.
DeviceKind PlannedDevice(const Config& config, std::string* reason) {
  try {
    return ChooseDevice(config, 1, reason);
  } catch (const Error& e) {  // told for the machine that it is meant for
    *reason = StrCat("not on this machine: ", StrSplit(e.what(), '\n')[0]);
    return DeviceKind::kCuda;
  }
}

// Memory of one rank that holds the whole model: the same code as a run, on the dry device.
std::string MemoryOnOneRank(Config config, DeviceKind device) {
  config.parallel = {};
  const auto self = MakeSelfCommunicator("self");
  std::unique_ptr<Dispatcher> dispatcher;
  if (config.model.n_routed_experts > 0)
    dispatcher =
        std::make_unique<LocalDispatcher>(config.model.n_routed_experts, config.model.num_experts_per_tok);
  return MemoryTable(
      Engine::Plan(EngineMode::kTraining, config, {self.get(), self.get(), self.get()}, dispatcher.get(),
                   device),
      {});
}

}  // namespace

std::string ValidateReport(const std::string& config_path, const Config& config) {
  const ParameterCounts n = CountParameters(config.model);
  const auto count = [](int64_t x) {
    return StrFormat("%15lld  %s", static_cast<long long>(x), HumanCount(static_cast<double>(x)).c_str());
  };
  std::string out = StrCat(config_path, " is valid.\n");
  out += StrCat("  parameters, total   ", count(n.total()), "\n");
  out += StrCat("  parameters, active  ", count(n.active()),
                "  (total minus the routed experts that a token does not choose)\n");
  out += StrCat("    embedding         ", count(n.embedding), "\n    attention         ", count(n.attention),
                "\n    dense MLP         ", count(n.dense_mlp), "\n    router            ", count(n.router),
                "\n    routed experts    ", count(n.routed_experts), "\n    shared experts    ",
                count(n.shared_experts), "\n    norms             ", count(n.norms),
                "\n    head              ", count(n.head), "\n");
  const double flops = CountFlopsPerToken(config.model, config.train.sequence_length).total();
  out += StrCat("  FLOPs a token       ", HumanCount(flops), ": ",
                FlopsFormula(config.model, config.train.sequence_length), "\n");
  std::string reason;
  const DeviceKind device = PlannedDevice(config, &reason);
  out += StrCat("  device              ", device == DeviceKind::kCuda ? "cuda" : "cpu", " (", reason, ")\n");
  out += PrecisionTable(config, device);
  const std::string windows = config.parallel.ep == 1 ? "" : WindowWarning(config);
  if (!windows.empty()) out += StrCat("  warning             ", windows, "\n");
  const std::vector<std::string> unsupported = UnsupportedFeatures(config);
  if (!unsupported.empty()) return out + "This version cannot run:\n  " + StrJoin(unsupported, "\n  ") + "\n";
  return out + "Memory of a rank that holds the whole model:\n" + MemoryOnOneRank(config, device);
}

}  // namespace yardmaster
