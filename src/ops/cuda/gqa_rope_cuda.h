// File: src/ops/cuda/gqa_rope_cuda.h
#pragma once

#include "src/ops/gqa_rope.h"

namespace yardmaster::cuda {

// Arguments checked.
void GqaRope(const Stream& stream, const char* op, const GqaRopeArgs& args, bool backward);

}  // namespace yardmaster::cuda
