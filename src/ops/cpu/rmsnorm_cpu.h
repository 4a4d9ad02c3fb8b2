// File: src/ops/cpu/rmsnorm_cpu.h
#pragma once

#include "src/ops/rmsnorm.h"

namespace yardmaster::cpu {

// The sum over tokens of dw is cut into at most this many chunks of rows, added in order: one
// result with any number of threads.
inline constexpr int64_t kRmsNormPartials = 16;

// Arguments checked.
void RmsNormForward(const Stream& stream, const RmsNormArgs& args);
void RmsNormBackward(const Stream& stream, const RmsNormBackwardArgs& args,
                     const Tensor& partial_dw);  // F64 [16, D]

}  // namespace yardmaster::cpu
