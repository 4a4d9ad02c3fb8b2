// File: src/ops/cuda/split_bf16_cuda.h
#pragma once

#include "src/ops/split_bf16.h"

namespace yardmaster::cuda {

// Arguments checked.
void SplitBf16(const Stream& stream, const Tensor& x, const std::vector<SplitOutput>& outputs);
void AddTerms(const Stream& stream, const std::vector<Tensor>& terms, double beta, const Tensor& y);

}  // namespace yardmaster::cuda
