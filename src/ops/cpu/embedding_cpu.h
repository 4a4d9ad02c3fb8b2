// File: src/ops/cpu/embedding_cpu.h
#pragma once

#include "src/ops/embedding.h"

namespace yardmaster::cpu {

// Arguments checked.
void EmbeddingForward(const Stream& stream, const Tensor& ids, const Tensor& table_VD,
                      const Tensor& x_TD);
// Threads share the columns, so every element is added by one thread in token order.
void EmbeddingBackward(const Stream& stream, const Tensor& ids, const Tensor& dx_TD, double beta,
                       const Tensor& dtable_VD);

}  // namespace yardmaster::cpu
