// File: src/ops/cuda/rmsnorm_cuda.h
#pragma once

#include "src/ops/rmsnorm.h"

namespace yardmaster::cuda {

// Arguments checked.
void RmsNormForward(const Stream& stream, const RmsNormArgs& args);
void RmsNormBackward(const Stream& stream, const RmsNormBackwardArgs& args,
                     const Tensor& partial_dw);  // [RmsNormPartials(T, D), D], accumulator type, with dw

}  // namespace yardmaster::cuda
