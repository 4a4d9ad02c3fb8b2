// File: src/ops/elementwise.h
#pragma once

#include "src/device/device.h"

namespace yardmaster {

void Fill(const Stream& stream, double value, const Tensor& y);                     // contiguous, any numeric dtype
void Add(const Stream& stream, const Tensor& a, const Tensor& b, const Tensor& y);  // y = a + b; y may be a or b
void Copy(const Stream& stream, const Tensor& x, const Tensor& y);                  // same shape; converts dtype (F32, F64, BF16), takes ld

}  // namespace yardmaster
