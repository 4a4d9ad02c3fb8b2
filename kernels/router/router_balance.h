// File: kernels/router/router_balance.h
//
// Sums and gradient of the losses that balance a router; src/ops/router_balance.h has the formulas.
//
// A block takes a chunk of the tokens of one sequence, a warp one token at a time. Forward leaves the chunk's
// sums (normalised scores by expert, squared logsumexp) in scratch and adds its integer counts to load; one
// more block adds the chunks up in their order. Backward finds the slope of its sequence once per block: it
// depends on the expert alone. No floating-point atomics: the same bits in every run. FP64 inside, whatever
// the scores' type. Forward reads E (with logits 2E) and backward moves 3E (4E) elements a token:
// memory-bound. At most kRouterMaxExperts experts. Reference: src/ops/cpu/router_balance_cpu.cc; test:
// tests/ops/router_balance_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"
#include "kernels/router/router.h"

namespace yardmaster {

struct BalanceShape {
  int64_t sequences, tokens;  // B; S, the tokens of one
  int64_t chunk;              // tokens of a block
  int experts, top_k;
  RouterScoring scoring;
  double share;

  __host__ __device__ int64_t chunks() const { return (tokens + chunk - 1) / chunk; }  // of a sequence
};

struct BalanceWeights {
  double sequence, micro_batch, global_batch, z;
};

// Scratch of a forward that is summed: F64 [B * chunks(), E] and [B * chunks()].
struct BalanceScratch {
  double* mass;
  double* squares;
};

// scores, and logits (null: no z), of kF32 or kF64 [B * S, E]. load int64 [B, E], overwritten. sums F64 [4]
// are added to; null: load alone is written, and scratch is not used. previous int64 [E] may be null:
// balanced.
cudaError_t SumBalance(KernelType type, const BalanceShape& shape, const void* scores, const void* logits,
                       const int64_t* previous, int64_t* load, double* sums, const BalanceScratch& scratch,
                       cudaStream_t stream);

// dlogits [B * S, E] += the gradient of the weighted losses. logits are read with weights.z alone.
cudaError_t BalanceBackward(KernelType type, const BalanceShape& shape, const BalanceWeights& weights,
                            const void* scores, const void* logits, const int64_t* previous,
                            const int64_t* load, void* dlogits, cudaStream_t stream);

}  // namespace yardmaster
