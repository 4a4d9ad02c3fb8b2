// File: src/ops/cpu/permute_cpu.h
#pragma once

#include "src/ops/permute.h"

namespace yardmaster::cpu {

// Arguments checked.
void PermutePlan(const PermutePlanArgs& args, const Tensor& overflow,
                 const Tensor& next_row);  // int64 [L + 1], scratch
void Permute(const Stream& stream, const PermuteArgs& args);
void Unpermute(const Stream& stream, const UnpermuteArgs& args);

}  // namespace yardmaster::cpu
