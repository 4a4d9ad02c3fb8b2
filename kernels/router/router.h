// File: kernels/router/router.h
//
// From router logits to experts, weights and load, in one pass, and the backward; src/ops/router.h has the
// formulas.
//
// One warp per token: lane l holds the scores of experts l, l + 32, ... in registers; groups, top-k and
// normalisation are reductions over the warp. The largest by (value, lower id) is taken K times; a NaN counts
// as -inf, so that always K distinct experts are chosen. Loads are counted in shared memory and added to
// counts once per block: integer sums, the same in any order. Reads E and writes E + 2K elements a token:
// memory-bound at E = 256, K = 8. FP32 (FP64) throughout. At most kRouterMaxExperts experts and
// kRouterMaxGroups groups. Reference: src/ops/cpu/router_cpu.cc; test: tests/ops/router_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

inline constexpr int kRouterMaxExperts = 1024;
inline constexpr int kRouterMaxGroups = 32;

enum class RouterScoring : int32_t { kSigmoid, kSoftmax };
enum class RouterGrouping : int32_t { kTop2Sum, kMax };          // the score of a group
enum class RouterForce : int32_t { kNone, kBalanced, kSkewed };  // by token number, for benchmarks

struct RouterShape {
  int64_t tokens;
  int experts, top_k, groups, topk_groups;
  RouterScoring scoring;
  RouterGrouping grouping;
  bool normalise;
  double scaling;
  RouterForce force;
  double force_skew;
};

// kF32 or kF64. bias [E] and forced_idx [T, K] may be null. A forced row that does not name K experts of the
// range in ascending order gives NaN weights. counts int64 [E] are added to; may be null.
cudaError_t RouteTokens(KernelType type, const RouterShape& shape, const void* logits, const void* bias,
                        const int32_t* forced_idx, void* scores, int32_t* idx, void* w, int64_t* counts,
                        cudaStream_t stream);

cudaError_t RouteTokensBackward(KernelType type, const RouterShape& shape, const void* dw, const void* scores,
                                const int32_t* idx, void* dlogits, cudaStream_t stream);

}  // namespace yardmaster
