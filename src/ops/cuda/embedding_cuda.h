// File: src/ops/cuda/embedding_cuda.h
#pragma once

#include "src/ops/embedding.h"

namespace yardmaster::cuda {

// Arguments checked.
void EmbeddingForward(const Stream& stream, const Tensor& ids, const Tensor& table_VD, const Tensor& x_TD);
void EmbeddingBackward(const Stream& stream, const Tensor& ids, const Tensor& dx_TD, double beta,
                       const Tensor& dtable_VD, const Tensor& squares,
                       const Tensor& order,    // int32 [2, T], scratch
                       const Tensor& prefix,   // int64 [bins, chunks of tokens], scratch
                       const Tensor& starts);  // int64 [bins + 1], scratch

}  // namespace yardmaster::cuda
