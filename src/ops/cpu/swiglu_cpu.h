// File: src/ops/cpu/swiglu_cpu.h
#pragma once

#include "src/ops/swiglu.h"

namespace yardmaster::cpu {

// Arguments checked, not empty.
void SwigluForward(const Stream& stream, const SwigluArgs& args);
void SwigluBackward(const Stream& stream, const SwigluBackwardArgs& args);

}  // namespace yardmaster::cpu
