// File: src/ops/cpu/split_bf16_cpu.h
#pragma once

#include "src/ops/split_bf16.h"

namespace yardmaster::cpu {

// Arguments checked.
void SplitBf16(const Tensor& x, const std::vector<SplitOutput>& outputs);
void AddTerms(const std::vector<Tensor>& terms, double beta, const Tensor& y);

}  // namespace yardmaster::cpu
