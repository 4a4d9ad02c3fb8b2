// File: src/ops/cpu/mtp_targets_cpu.h
#pragma once

#include "src/ops/mtp_targets.h"

namespace yardmaster::cpu {

void MtpTargets(const MtpTargetsArgs& args);
void MtpLossScale(const MtpLossScaleArgs& args);

}  // namespace yardmaster::cpu
