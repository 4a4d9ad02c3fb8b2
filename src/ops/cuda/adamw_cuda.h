// File: src/ops/cuda/adamw_cuda.h
#pragma once

#include "src/ops/adamw.h"

namespace yardmaster::cuda {

// Arguments checked.
void AdamWMulti(const Stream& stream, const std::vector<AdamWTensor>& tensors, const AdamWHyper& hyper,
                const Tensor& state);

}  // namespace yardmaster::cuda
