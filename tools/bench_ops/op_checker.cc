#include "tools/bench_ops/op_checker.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/strings.h"
#include "tools/bench_ops/op_execution.h"

namespace yardmaster {
namespace {

// NaN anywhere, or a difference where the reference is zero: infinite.
double RelativeL2(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  if (difference == 0) return 0;
  const double relative = std::sqrt(difference / norm);
  return std::isnan(relative) ? std::numeric_limits<double>::infinity() : relative;
}

bool IsInteger(const BenchOp& op, const std::string& name) {
  for (const BenchBuffer& b : op.buffers) {
    if (b.name == name) return b.type == BenchType::kI32 || b.type == BenchType::kI64;
  }
  return false;
}

}  // namespace

std::vector<CallCheck> CheckBenchOp(const BenchOpEntry& entry, Device& device, DType work, uint64_t seed,
                                    int rounds) {
  std::vector<CallCheck> checks;
  const std::unique_ptr<Device> cpu = MakeCpuDevice({});
  for (int round = 0; round < rounds; ++round) {
    const uint64_t of_round = seed + static_cast<uint64_t>(round);
    const BenchOp op = entry.make(RandomSizes(of_round));
    const auto inputs = RandomInputs(op, work, of_round);
    OpExecution ours(op, work, device, inputs), reference(op, DType::kF64, *cpu, inputs);
    checks.resize(op.calls.size());
    for (size_t c = 0; c < op.calls.size(); ++c) {
      const BenchCall& call = op.calls[c];
      CallCheck& check = checks[c];
      check.call = call.name;
      check.tolerance = work == DType::kBF16 ? call.tolerance_bf16 : call.tolerance_f32;
      ours.Run(call);
      reference.Run(call);
      for (const std::string& name : call.outputs) {
        const double error = RelativeL2(ours.Values(name), reference.Values(name));
        const int64_t touched = ours.Touched(name);
        const double allowed = IsInteger(op, name) ? 0 : check.tolerance;
        check.error = std::max(check.error, error);
        ++check.checked;
        if (error <= allowed && touched == 0) continue;
        check.trouble =
            StrCat(name, " differs by ", StrFormat("%.2e", error), ", allowed ", StrFormat("%.0e", allowed),
                   touched > 0 ? StrCat("; ", touched, " bytes written beyond its rows") : "", " (", op.sizes,
                   "; seed ", of_round, ")");
      }
    }
  }
  return checks;
}

}  // namespace yardmaster
