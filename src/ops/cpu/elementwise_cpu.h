// File: src/ops/cpu/elementwise_cpu.h
#pragma once

#include "src/ops/elementwise.h"

namespace yardmaster::cpu {

// Arguments checked, not empty.
void Fill(const Stream& stream, double value, const Tensor& y);
void Add(const Stream& stream, const Tensor& a, const Tensor& b, const Tensor& y);
void Copy(const Stream& stream, const Tensor& x, const Tensor& y);

}  // namespace yardmaster::cpu
