// File: src/ops/cuda/sdpa_graphs.h
//
// Causal attention as cuDNN graphs: BF16 with FP32 softmax, logsumexp kept. Tensors lie as [B, S, heads, width] in memory;
// a plan covers `samples` samples and `key_heads` key heads with their query heads, out of a whole tensor's
// all_key_heads: the strides are those of the whole tensor, the pointers say which part.
#pragma once

#include "src/ops/cuda/cudnn_graph.h"

namespace yardmaster::cuda {

struct SdpaShape {
  int64_t samples = 0, S = 0;
  int64_t key_heads = 0, all_key_heads = 0;
  int64_t queries_per_key = 1;  // H / G
  int64_t Q = 0, V = 0;
  float scale = 1;
  bool deterministic = true;    // backward; the other way adds dq in FP32 with atomics and needs less workspace
  auto operator<=>(const SdpaShape&) const = default;
};

struct SdpaForward {
  CudnnPlan plan;
  CudnnTensor q, k, v, o, lse;
};
struct SdpaBackward {
  CudnnPlan plan;
  CudnnTensor q, k, v, o, lse, do_, dq, dk, dv;
  CudnnTensor softmax_sum;       // FP32 [samples, heads, S], scratch
  CudnnTensor dq_accum;          // FP32 [samples, heads, S, Q], scratch; 0 when deterministic
};
// Throw CudnnRefusal.
SdpaForward BuildSdpaForward(cudnnHandle_t handle, const SdpaShape& shape, int64_t max_workspace_bytes);
SdpaBackward BuildSdpaBackward(cudnnHandle_t handle, const SdpaShape& shape, int64_t max_workspace_bytes);

}  // namespace yardmaster::cuda
