// File: src/ops/cpu/router_cpu.h
#pragma once

#include "src/ops/router.h"

namespace yardmaster::cpu {

// Arguments checked, at least one token.
void RouterForward(const Stream& stream, const RouterSpec& spec, const RouterArgs& args);
void RouterBackward(const Stream& stream, const RouterSpec& spec, const RouterBackwardArgs& args);

}  // namespace yardmaster::cpu
