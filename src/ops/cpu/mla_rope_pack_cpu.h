// File: src/ops/cpu/mla_rope_pack_cpu.h
#pragma once

#include "src/ops/mla_rope_pack.h"

namespace yardmaster::cpu {

// Arguments checked, at least one token.
void MlaRopePackForward(const Stream& stream, const MlaRopePackArgs& args);
void MlaRopePackBackward(const Stream& stream, const MlaRopePackBackwardArgs& args);

}  // namespace yardmaster::cpu
