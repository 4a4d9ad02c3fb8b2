// File: src/ops/cpu/linear_cross_entropy_cpu.h
#pragma once

#include "src/ops/linear_cross_entropy.h"

namespace yardmaster::cpu {

// Arguments checked. Workspaces of a chunk of C tokens: `logits` [C, V], `losses` F64 [C].
void LinearCrossEntropy(const Stream& stream, const LinearCrossEntropyArgs& args,
                        const Tensor& logits, const Tensor& losses);

}  // namespace yardmaster::cpu
