// File: src/ops/cpu/adamw_cpu.h
#pragma once

#include <vector>

#include "src/ops/adamw.h"

namespace yardmaster::cpu {

// Arguments checked. Computes in the master's type; bias corrections and the step size in double.
void AdamWMulti(const Stream& stream, const std::vector<AdamWTensor>& tensors,
                const AdamWHyper& hyper, const Tensor& state);

}  // namespace yardmaster::cpu
