// File: src/ops/cuda/elementwise_cuda.h
#pragma once

#include "src/ops/elementwise.h"

namespace yardmaster::cuda {

// Arguments checked.
void Fill(const Stream& stream, double value, const Tensor& y);
void Add(const Stream& stream, const Tensor& a, const Tensor& b, const Tensor& y);
void Copy(const Stream& stream, const Tensor& x, const Tensor& y);

}  // namespace yardmaster::cuda
