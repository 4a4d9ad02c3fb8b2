#include "tools/commands/bench_step.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/comm/agree.h"
#include "src/config/parameters.h"
#include "src/config/reader.h"
#include "src/config/schedule.h"
#include "src/config/supported.h"
#include "src/metrics/step_parts.h"
#include "src/train/batches.h"
#include "src/train/engine.h"
#include "src/train/machine_memory.h"
#include "src/train/open_data.h"
#include "src/train/runtime.h"
#include "src/train/summary.h"

namespace yardmaster {
namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

double Gib(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

struct Rates {
  double median, tokens_per_second, tflops;
  explicit Rates(const BenchStepResult& r)
      : median(Median(r.milliseconds)),
        tokens_per_second(static_cast<double>(r.tokens) / median * 1e3),
        tflops(tokens_per_second * r.flops_per_token * 1e-12) {}
};

double LoadMaxOverMean(const StepReport& report) {
  double worst = 0;
  for (const std::vector<int64_t>& load : report.load) {
    double sum = 0, largest = 0;
    for (const int64_t n : load) {
      sum += static_cast<double>(n);
      largest = std::max(largest, static_cast<double>(n));
    }
    if (sum > 0) worst = std::max(worst, largest * static_cast<double>(load.size()) / sum);
  }
  return worst;
}

// The part times of one step: a share of those of all timed steps.
std::vector<PartTime> PartsOfOneStep(const BenchStepResult& r) {
  std::vector<PartTime> parts = PartTimes(r.times);
  for (PartTime& p : parts) p.milliseconds /= static_cast<double>(r.timed_steps);
  return parts;
}

std::string Json(const BenchStepOptions& o, const BenchStepResult& r) {
  const Rates rates(r);
  const auto [least, most] = std::minmax_element(r.milliseconds.begin(), r.milliseconds.end());
  nlohmann::ordered_json out = {{"device", r.device},
                                {"config", o.config_path},
                                {"set", o.set},
                                {"routing", o.routing},
                                {"impl", o.impl},
                                {"steps", r.milliseconds.size()},
                                {"ms", rates.median},
                                {"ms_min", *least},
                                {"ms_max", *most},
                                {"tokens", r.tokens},
                                {"tokens_per_second", rates.tokens_per_second},
                                {"tflops", rates.tflops},
                                {"flops_formula", r.flops_formula},
                                {"first_loss", r.first_loss},
                                {"last_loss", r.last_loss},
                                {"load_max_over_mean", r.load_max_over_mean},
                                {"planned_gib", Gib(r.planned_bytes)},
                                {"used_gib", Gib(r.used_bytes)},
                                {"cuda_graph", r.graph}};
  if (r.timed_steps == 0) return out.dump(2) + "\n";
  for (const PartTime& p : PartsOfOneStep(r)) out["parts_ms"][p.part] = p.milliseconds;
  for (const OpTotal& t : TotalsByOp(r.times.ops, r.timed_steps)) {
    out["ops"].push_back({{"op", t.op},
                          {"sizes", t.what},
                          {"calls", t.calls},
                          {"ms", t.milliseconds},
                          {"tflops", t.flops / t.milliseconds * 1e-9},
                          {"tb_per_second", t.bytes / t.milliseconds * 1e-9}});
  }
  return out.dump(2) + "\n";
}

}  // namespace

std::vector<std::string> BenchStepOverrides(const BenchStepOptions& o) {
  std::vector<std::string> out;
  if (o.routing == "balanced") {
    out.push_back("moe.force_routing=balanced");
  } else if (o.routing.starts_with("skew:")) {
    out.push_back("moe.force_routing=skewed");
    out.push_back("moe.force_skew=" + o.routing.substr(5));
  } else if (o.routing != "real") {
    throw ConfigError("unknown --routing '" + o.routing + "'", "", "real, balanced or skew:S");
  }
  if (o.impl == "naive") {
    out.insert(out.end(), {"moe.gemm=loop", "runtime.attention=unfused", "runtime.cuda_graph=false"});
  } else if (o.impl != "auto") {
    throw ConfigError("unknown --impl '" + o.impl + "'", "", "auto or naive");
  }
  return out;
}

std::vector<OpTotal> TotalsByOp(const std::vector<OpTime>& ops, int64_t steps) {
  std::map<std::pair<std::string, std::string>, OpTotal> totals;
  const double share = 1.0 / static_cast<double>(steps);
  for (const OpTime& op : ops) {
    OpTotal& t = totals[{op.op, op.what}];
    t.op = op.op, t.what = op.what;
    t.calls += share;
    t.milliseconds += op.seconds * 1e3 * share;
    t.flops += op.flops * share;
    t.bytes += op.bytes * share;
  }
  std::vector<OpTotal> out;
  for (auto& [key, total] : totals) out.push_back(std::move(total));
  std::stable_sort(out.begin(), out.end(),
                   [](const OpTotal& a, const OpTotal& b) { return a.milliseconds > b.milliseconds; });
  return out;
}

std::string BenchStepText(const BenchStepOptions& o, const BenchStepResult& r) {
  if (o.json) return Json(o, r);
  const Rates rates(r);
  const auto [least, most] = std::minmax_element(r.milliseconds.begin(), r.milliseconds.end());
  std::string out = StrCat(r.device, "\n", o.config_path, ", routing ", o.routing, ", ",
                           o.impl == "naive" ? "naive"
                           : r.graph         ? "CUDA graph"
                                             : "no CUDA graph",
                           r.ranks > 1 ? StrCat("; ", r.ranks, " ranks, figures of each") : "", "\n");
  out += StrFormat("step      %.2f ms (median of %zu, %.2f to %.2f)\n", rates.median, r.milliseconds.size(),
                   *least, *most);
  out +=
      StrFormat("tokens/s  %.0f (%lld a step)\n", rates.tokens_per_second, static_cast<long long>(r.tokens));
  out +=
      StrFormat("TFLOP/s   %.1f: tokens/s x FLOPs of a token, %s\n", rates.tflops, r.flops_formula.c_str());
  out += StrFormat("loss      %.4f to %.4f; largest expert over mean %.2f\n", r.first_loss, r.last_loss,
                   r.load_max_over_mean);
  out += StrFormat("memory    planned %.2f GiB", Gib(r.planned_bytes));
  out += r.used_bytes ? StrFormat(", the device's in use %.2f GiB\n", Gib(r.used_bytes)) : "\n";
  if (r.timed_steps == 0) return out;
  out += StrCat(PartTimesLine(PartsOfOneStep(r)), "\n");
  if (!o.ops) return out;
  out += StrFormat("%-26s %-26s %6s %10s %8s %6s\n", "op", "sizes", "calls", "ms", "TFLOP/s", "TB/s");
  for (const OpTotal& t : TotalsByOp(r.times.ops, r.timed_steps)) {
    out += StrFormat("%-26s %-26s %6.0f %10.3f %8.0f %6.2f\n", t.op.c_str(), t.what.c_str(), t.calls,
                     t.milliseconds, t.flops / t.milliseconds * 1e-9, t.bytes / t.milliseconds * 1e-9);
  }
  return out;
}

int RunBenchStep(const BenchStepOptions& options, MpiWorld* world) {
  if (options.steps < 1 || options.warmup < 2 || options.timed < 0)
    throw ConfigError("--steps must be at least 1, --warmup at least 2, --timed at least 0");
  std::vector<std::string> set = BenchStepOverrides(options);
  set.insert(set.end(), options.set.begin(), options.set.end());
  const LoadedConfig loaded = LoadConfig(options.config_path, set);
  const Config& config = loaded.config;
  const std::vector<std::string> unsupported = UnsupportedFeatures(config);
  if (!unsupported.empty())
    throw ConfigError("this version cannot run " + StrJoin(unsupported, "; "), options.config_path);
  const auto say = [&](const std::string& line) {
    if (!options.json) LogInfo(line);
  };

  Runtime runtime(loaded, world);
  if (runtime.size() > 1) say(StrCat("transport ", runtime.transport()));
  BatchSource source(std::move(OpenData(config, nullptr).train), config.train.micro_batch_size, runtime.dp_rank(),
                     runtime.dp_size());
  const std::vector<ArenaSize> planned = Engine::Plan(EngineMode::kTraining, config, runtime.groups(),
                                                      runtime.dispatcher(), runtime.device().kind());
  say(MemoryTable(planned, {}));
  AgreeOrThrow(
      runtime.agreement(), [&] { CheckFits(planned, runtime.device(), runtime.ranks_on_device()); },
      "planning memory");
  const double start = NowSeconds();
  Engine engine(EngineMode::kTraining, config, runtime.groups(), runtime.dispatcher(), &runtime.device(),
                planned, runtime.dispatch_memory());
  engine.Initialise(static_cast<uint64_t>(config.run.seed));
  say(StrFormat("ready after %.1f s", NowSeconds() - start));

  BenchStepResult r;
  const auto batch = static_cast<int64_t>(LargestScheduleValue(config.train.global_batch_size));
  r.device = runtime.device().description();
  r.ranks = runtime.size();
  r.tokens = batch * config.train.sequence_length / runtime.dp_size();
  r.flops_per_token = CountFlopsPerToken(config.model, config.train.sequence_length).total();
  r.flops_formula = FlopsFormula(config.model, config.train.sequence_length);
  for (const ArenaSize& arena : planned) r.planned_bytes += arena.bytes;
  r.planned_bytes += runtime.device().library_bytes();
  int64_t sample = 0;
  const auto enqueue = [&](bool timed) {
    const HostBatch data = source.Read(sample, batch);
    sample += batch;
    if (timed) engine.TimeNextStep();
    engine.Stage(data);
    engine.Step(data.micro_batches, batch * config.train.sequence_length);
  };
  for (int64_t i = 0; i < options.warmup; ++i) {
    const double begin = NowSeconds();
    enqueue(false);
    const StepReport report = std::move(engine.TakeReports().at(0));
    if (i == 0) r.first_loss = report.state.loss;
    say(StrFormat("warm-up   %.1f ms, loss %.4f", 1e3 * (NowSeconds() - begin), report.state.loss));
  }
  // As in training, a step is enqueued before the host looks at the one before it, unless the config says
  // never.
  const int64_t ahead = config.runtime.run_ahead == "never" ? 0 : 1;
  double begin = NowSeconds();
  if (ahead > 0) enqueue(false);
  for (int64_t i = 0; i < options.steps; ++i) {
    enqueue(false);
    const StepReport report = std::move(engine.TakeReports(ahead).at(0));
    const double end = NowSeconds();
    r.milliseconds.push_back(1e3 * (end - begin));
    begin = end;
    r.last_loss = report.state.loss;
    r.load_max_over_mean = LoadMaxOverMean(report);
    r.graph = engine.replayed();
    if (report.state.verdict != static_cast<int32_t>(StepVerdict::kOk))
      throw Error(ExitCode::kInternal,
                  "a measured step skipped its update: its loss or gradient norm is not finite");
  }
  engine.TakeReports();
  for (; r.timed_steps < options.timed; ++r.timed_steps) {
    enqueue(true);
    StepTimes times = std::move(engine.TakeReports().at(0).times);
    r.times.seconds += times.seconds;
    for (OpTime& op : times.ops) r.times.ops.push_back(std::move(op));
  }
  r.used_bytes = runtime.device().used_bytes();
  if (runtime.rank() == 0) std::fputs(BenchStepText(options, r).c_str(), stdout);
  return 0;
}

}  // namespace yardmaster
