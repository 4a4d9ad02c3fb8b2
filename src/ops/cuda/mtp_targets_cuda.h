// File: src/ops/cuda/mtp_targets_cuda.h
#pragma once

#include "src/ops/mtp_targets.h"

namespace yardmaster::cuda {

// Arguments checked.
void MtpTargets(const Stream& stream, const MtpTargetsArgs& args);
void MtpLossScale(const Stream& stream, const MtpLossScaleArgs& args);

}  // namespace yardmaster::cuda
