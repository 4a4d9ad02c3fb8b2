// File: src/ops/cuda/mla_rope_pack_cuda.h
#pragma once

#include "src/ops/mla_rope_pack.h"

namespace yardmaster::cuda {

// Arguments checked.
void MlaRopePackForward(const Stream& stream, const MlaRopePackArgs& args);
void MlaRopePackBackward(const Stream& stream, const MlaRopePackBackwardArgs& args);

}  // namespace yardmaster::cuda
