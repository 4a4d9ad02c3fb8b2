// File: src/ops/cuda/swiglu_cuda.h
#pragma once

#include "src/ops/swiglu.h"

namespace yardmaster::cuda {

// Arguments checked.
void SwigluForward(const Stream& stream, const SwigluArgs& args);
void SwigluBackward(const Stream& stream, const SwigluBackwardArgs& args);

}  // namespace yardmaster::cuda
