#include "src/ops/cpu/mtp_targets_cpu.h"

#include <algorithm>
#include <cstring>

#include "src/ops/step_control.h"

namespace yardmaster::cpu {

void MtpTargets(const MtpTargetsArgs& g) {
  const int64_t B = g.tokens.dim(0), S = g.tokens.dim(1), d = g.depth;
  int64_t valid = 0;
  for (int64_t b = 0; b < B; ++b) {
    const int32_t* tokens = g.tokens.as<int32_t>() + b * S;
    const int32_t* targets = g.targets.as<int32_t>() + b * S;
    const int32_t* start = g.document_start.defined() ? g.document_start.as<int32_t>() + b * S : nullptr;
    for (int64_t i = 0; i < S; ++i) {
      const int64_t input = i + d, target = i + d + 1;  // of the sample's tokens 0..S
      bool counts = target <= S && targets[target - 1] >= 0;
      if (start != nullptr) counts = counts && target < S && start[target] <= i;
      valid += counts;
      if (!g.inputs.defined()) continue;
      g.inputs.as<int32_t>()[b * S + i] =
          input < S ? tokens[input] : (input == S ? std::max(targets[S - 1], 0) : 0);
      g.mtp_targets.as<int32_t>()[b * S + i] = counts ? targets[target - 1] : -1;
    }
  }
  if (g.valid.defined()) *g.valid.as<int64_t>() += valid;
}

void MtpLossScale(const MtpLossScaleArgs& g) {
  StepState state;
  DeviceSchedule schedule;
  std::memcpy(&state, g.state.data(), sizeof(state));
  std::memcpy(&schedule, g.schedule.data(), sizeof(schedule));
  const int64_t valid = *g.valid.as<int64_t>();
  *g.scale.as<double>() =
      valid > 0 ? DeviceScheduleValue(schedule, state.tokens) / static_cast<double>(valid) : 0;
}

}  // namespace yardmaster::cpu
