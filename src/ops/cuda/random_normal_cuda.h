// File: src/ops/cuda/random_normal_cuda.h
#pragma once

#include "src/ops/random_normal.h"

namespace yardmaster::cuda {

void RandomNormal(const Stream& stream, const RandomNormalArgs& args);  // arguments checked

}  // namespace yardmaster::cuda
