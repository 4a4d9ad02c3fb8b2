// File: src/ops/cuda/attention_plan.h
//
// What attention needs and how it is cut, from the shape alone: the dry device plans with it, on any machine, and the GPU
// keeps to it. cuDNN's deterministic backward stores dP, S x S BF16 per head, so it goes over groups of heads; the unfused
// path goes over groups of heads and blocks of query rows.
#pragma once

#include "src/ops/attention.h"

namespace yardmaster::cuda {

struct AttentionShape {
  int64_t B = 0, S = 0, H = 0, G = 0, Q = 0, V = 0;
  DType type = DType::kBF16;
  bool documents = false;
  int64_t max_workspace = kAttentionWorkspace;
  explicit AttentionShape(const AttentionArgs& args);
  int64_t rep() const { return H / G; }  // query heads of a key head
};

// cuDNN takes it on some GPU that we know of.
bool CudnnMayRun(const AttentionShape& shape);
bool CudnnRunsOn(const AttentionShape& shape, int sm);

struct CudnnCut {
  int64_t samples = 1, key_heads = 1;  // of one call; key_heads divides G
  int64_t workspace = 0;               // bytes that the call may use, scratch tensors included
};
CudnnCut CutCudnnForward(const AttentionShape& shape);
// Within max_workspace, unless one head alone needs more.
CudnnCut CutCudnnBackward(const AttentionShape& shape, bool deterministic);

struct UnfusedCut {
  int64_t rows = 1, key_heads = 1;     // of one pass; row blocks start at multiples of `rows`
  int64_t ld = 0;                      // between rows of scores
  int64_t scores = 0, probabilities = 0, gradients = 0;  // bytes of s (and dp), of p (and ds), of dk and dv in FP32
  int64_t workspace = 0;
};
UnfusedCut CutUnfused(const AttentionShape& shape, bool backward);

// Enough for either path.
int64_t AttentionWorkspaceBytes(const AttentionShape& shape, bool backward, bool deterministic);

}  // namespace yardmaster::cuda
