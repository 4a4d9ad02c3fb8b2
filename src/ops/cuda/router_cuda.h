// File: src/ops/cuda/router_cuda.h
#pragma once

#include "src/ops/router.h"

namespace yardmaster::cuda {

// Arguments checked.
void RouterForward(const Stream& stream, const RouterSpec& spec, const RouterArgs& args);
void RouterBackward(const Stream& stream, const RouterSpec& spec, const RouterBackwardArgs& args);

}  // namespace yardmaster::cuda
