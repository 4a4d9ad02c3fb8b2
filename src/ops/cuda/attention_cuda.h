// File: src/ops/cuda/attention_cuda.h
//
// cuDNN where it takes the shape; else GEMMs and softmax kernels (FP32, FP64, document masks, odd head widths), same contract.
#pragma once

#include <string>

#include "src/ops/cuda/attention_plan.h"

namespace yardmaster::cuda {

// Arguments checked, not empty. `work`: AttentionWorkspaceBytes bytes.
void AttentionForward(const Stream& stream, const AttentionArgs& args, const Tensor& work);
void AttentionBackward(const Stream& stream, const AttentionBackwardArgs& args, const Tensor& work);
std::string AttentionPlans(const Stream& stream);

}  // namespace yardmaster::cuda
