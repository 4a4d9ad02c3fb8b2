// File: src/ops/cuda/attention_cudnn.h
#pragma once

#include "src/ops/cuda/attention_plan.h"
#include "src/ops/cuda/cuda_stream.h"

namespace yardmaster::cuda {

// False, with nothing done, when cuDNN refuses the shape on this GPU (asked once, then remembered). Throws when a plan that
// was accepted fails to run.
bool CudnnAttentionForward(const Stream& stream, const AttentionArgs& args, const Tensor& work);
bool CudnnAttentionBackward(const Stream& stream, const AttentionBackwardArgs& args, const Tensor& work);

// A line per shape: the engine and its workspace, or why cuDNN was not taken.
std::string CudnnPlans(const Stream& stream);

}  // namespace yardmaster::cuda
