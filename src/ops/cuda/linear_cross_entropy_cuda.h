// File: src/ops/cuda/linear_cross_entropy_cuda.h
#pragma once

#include "src/ops/linear_cross_entropy.h"

namespace yardmaster::cuda {

// Arguments checked. Workspaces of a chunk of C tokens: `logits` [C, V] in the work type, `losses` F64 [C].
void LinearCrossEntropy(const Stream& stream, const LinearCrossEntropyArgs& args, const Tensor& logits, const Tensor& losses);

}  // namespace yardmaster::cuda
