// File: src/ops/cuda/permute_cuda.h
#pragma once

#include "src/ops/permute.h"

namespace yardmaster::cuda {

// Arguments checked.
void PermutePlan(const Stream& stream, const PermutePlanArgs& args, const Tensor& overflow,
                 const Tensor& prefix,   // int64 [L, chunks of pairs], scratch
                 const Tensor& starts);  // int64 [L + 1], scratch
void Permute(const Stream& stream, const PermuteArgs& args);
void Unpermute(const Stream& stream, const UnpermuteArgs& args);

}  // namespace yardmaster::cuda
