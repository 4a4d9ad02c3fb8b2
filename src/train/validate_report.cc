#include "src/train/validate_report.h"

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/config/parameters.h"
#include "src/config/supported.h"
#include "src/config/validate.h"
#include "src/parallel/mesh.h"
#include "src/train/rank_plan.h"
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
  return StrCat("Memory of a rank that holds the whole model:\n", MemoryTable(PlanOfRank(config, 1, device), {}));
}

std::string MemoryOnRanks(const Config& config, int64_t ranks, DeviceKind device) {
  const Mesh mesh(ranks, config.parallel.pp, ExpertParallelRanks(config, ranks));
  std::string windows;
  if (mesh.ep() > 1 && config.ep.ragged_buffer_factor < 0) {
    const double tokens = 1 << 20;
    const double rows = static_cast<double>(DispatchOptions(config, mesh.ep(), 0).window_rows(int64_t{1} << 20));
    windows = StrFormat("  (ep.ragged_buffer_factor -1: windows hold the worst case, %.3g times the balanced load; a factor such as "
                        "1.25 takes less)\n", rows / (tokens * static_cast<double>(config.model.num_experts_per_tok)));
  }
  return StrCat("Memory of rank 0 of ", ranks, " (dp ", mesh.dp(), " x pp ", mesh.pp(), ", ep ", mesh.ep(), ", zero ",
                config.parallel.zero, "):\n", MemoryTable(PlanOfRank(config, ranks, device), {}), windows);
}

}  // namespace

std::string ValidateReport(const std::string& config_path, const Config& config, int64_t ranks,
                           const ConfigPlaces& places) {
  const bool pipeline = config.parallel.pp > 1;  // refused below, before a layout that may need it
  if (ranks > 0 && !pipeline) {
    Issues issues;
    ValidateLayout(config, static_cast<int>(ranks), places, issues);
    issues.ThrowIfAny();
  }
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
  if (device == DeviceKind::kCuda)
    out += "  run on              compute capability 9.0 (H200); for 8.x and 10.x (Blackwell) compiled, not run\n";
  out += PrecisionTable(config, device);
  const std::string windows = config.parallel.ep == 1 ? "" : WindowWarning(config);
  if (!windows.empty()) out += StrCat("  warning             ", windows, "\n");
  const std::vector<std::string> unsupported = UnsupportedFeatures(config);
  if (!unsupported.empty()) return out + "This version cannot run:\n  " + StrJoin(unsupported, "\n  ") + "\n";
  out += ranks > 0 ? MemoryOnRanks(config, ranks, device) : MemoryOnOneRank(config, device);
  if (device == DeviceKind::kCuda) out += "  (beside it: CUDA, libraries and NCCL: about 0.5 GiB on one H200, 2.3 on each of two)\n";
  return out;
}

}  // namespace yardmaster
