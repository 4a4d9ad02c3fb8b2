#include "tools/commands/bench_op.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <random>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/device/cuda/make_cuda_device.h"
#include "tools/bench_ops/bench_op.h"
#include "tools/bench_ops/op_checker.h"
#include "tools/bench_ops/op_report.h"

#if YM_HAVE_CUDA
#include "tools/bench_ops/op_execution.h"
#include "tools/bench_ops/op_timer.h"
#endif

namespace yardmaster {
namespace {

std::vector<BenchOpEntry> Chosen(const BenchOpOptions& o) {
  if (o.op == "all") return BenchOps();
  std::vector<std::string> names;
  for (const BenchOpEntry& entry : BenchOps()) {
    if (entry.name == o.op) return {entry};
    names.push_back(entry.name);
  }
  const std::string nearest = NearestName(o.op, names);
  throw ConfigError(
      StrCat("there is no op ", o.op, " to measure"), "bench",
      nearest.empty() ? "one of all, " + StrJoin(names, ", ") : "did you mean " + nearest + "?");
}

void Validate(const BenchOpOptions& o) {
  if (o.tokens < 1) throw ConfigError(StrCat("must be at least 1, found ", o.tokens), "--tokens");
  if (o.rounds < 1) throw ConfigError(StrCat("must be at least 1, found ", o.rounds), "--rounds");
  if (o.repeats < 3)
    throw ConfigError(StrCat("must be at least 3, found ", o.repeats), "--repeats",
                      "a median of fewer means little");
  if (o.precision != "bf16" && o.precision != "fp32")
    throw ConfigError(StrCat("must be bf16 or fp32, found ", o.precision), "--precision");
}

// An op that fails is one of the results: the others are still looked at.
std::vector<CallCheck> Check(const BenchOpEntry& entry, const BenchOpOptions& o, DType work, Device& device,
                             uint64_t seed) {
  try {
    return CheckBenchOp(entry, device, work, seed, o.rounds);
  } catch (const Error& e) {
    std::vector<CallCheck> failed;
    for (const BenchCall& call : entry.make(RandomSizes(seed)).calls)
      failed.push_back(
          {.call = call.name, .error = HUGE_VAL, .tolerance = 0, .checked = 0, .trouble = e.what()});
    return failed;
  }
}

#if YM_HAVE_CUDA

// Adds times to the results of one op, which are in the order of its calls.
void Time(const BenchOpEntry& entry, const BenchOpOptions& o, DType work, Device& device, OpTimer& timer,
          OpResult* results) {
  const BenchOp op = entry.make(ProxySizes(o.tokens));
  OpExecution execution(op, work, device, /*seed=*/1);
  for (size_t c = 0; c < op.calls.size(); ++c) {
    const BenchCall& call = op.calls[c];
    OpResult& r = results[c];
    r.sizes = op.sizes;
    r.flops = call.flops;
    for (const BenchMove& move : call.moves) {
      for (const BenchBuffer& b : op.buffers) {
        if (b.name == move.buffer) r.bytes += move.share * UsedBytes(b, work);
      }
    }
    r.ms = timer.MedianMs([&] { execution.Run(call); }, call.flops > 0 ? o.heat_seconds : 0);
  }
}

#endif

}  // namespace

std::vector<std::pair<std::string, std::string>> BenchOpNames() {
  std::vector<std::pair<std::string, std::string>> names = {{"all", "every op, a line for each call"}};
  for (const BenchOpEntry& entry : BenchOps()) names.emplace_back(entry.name, entry.summary);
  return names;
}

int RunBenchOp(const BenchOpOptions& o) {
  Validate(o);
  const std::vector<BenchOpEntry> entries = Chosen(o);
  const CudaStatus status = CudaAvailability();
  if (status.usable == 0) throw ConfigError(StrCat("bench ", o.op, " needs a GPU: ", status.reason));
  const DType work = o.precision == "bf16" ? DType::kBF16 : DType::kF32;
  const std::unique_ptr<Device> device = MakeCudaDevice({});
  const uint64_t seed = o.seed ? *o.seed : std::random_device()();
  std::vector<OpResult> results;
  std::vector<size_t> first;  // result of each op
  bool wrong = false;
  for (const BenchOpEntry& entry : entries) {
    first.push_back(results.size());
    for (const CallCheck& c : Check(entry, o, work, *device, seed)) {
      results.push_back({.op = entry.name,
                         .call = c.call,
                         .sizes = {},
                         .error = c.error,
                         .tolerance = c.tolerance,
                         .trouble = c.trouble});
      wrong = wrong || !c.trouble.empty();
    }
  }
  OpReportHead head{.device = device->description(),
                    .precision = o.precision,
                    .seed = seed,
                    .rounds = o.rounds,
                    .repeats = o.repeats,
                    .ceilings = {}};
#if YM_HAVE_CUDA
  if (!o.check_only) {
    OpTimer timer(*device, o.repeats);
    head.ceilings = timer.Ceilings(work, o.heat_seconds);
    for (size_t i = 0; i < entries.size(); ++i) Time(entries[i], o, work, *device, timer, &results[first[i]]);
  }
#endif
  std::fputs((o.json ? OpReportJson(head, results) : OpReportText(head, results)).c_str(), stdout);
  return wrong ? 1 : 0;
}

}  // namespace yardmaster
