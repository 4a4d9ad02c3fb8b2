// File: src/ops/cpu/gqa_rope_cpu.h
#pragma once

#include "src/ops/gqa_rope.h"

namespace yardmaster::cpu {

void GqaRope(const Stream& stream, const GqaRopeArgs& args, bool backward);

}  // namespace yardmaster::cpu
