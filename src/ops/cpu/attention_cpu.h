// File: src/ops/cpu/attention_cpu.h
//
// Attention on the cpu device: per (sample, head) and block of query rows, <q, k> by GEMM, softmax,
// p v by GEMM; keys above the diagonal, or before every document of the block, are left out.
// (sample, key head) pairs are cut into a fixed number of chunks with a workspace each, so neither
// memory nor bits depend on the number of threads.
#pragma once

#include "src/ops/attention.h"

namespace yardmaster::cpu {

inline constexpr int64_t kAttentionChunks = 32;
inline constexpr int64_t kAttentionRows = 64;  // query rows of a block

// Arguments checked, not empty. `p`, `ds`: workspaces [kAttentionChunks, kAttentionRows, S].
void AttentionForward(const Stream& stream, const AttentionArgs& args, const Tensor& p);
void AttentionBackward(const Stream& stream, const AttentionBackwardArgs& args, const Tensor& p,
                       const Tensor& ds);

}  // namespace yardmaster::cpu
