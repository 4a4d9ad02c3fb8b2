// File: kernels/step_control/step_control.h
//
// The verdict of a step and what follows from it, in device memory; src/ops/step_control.h has the contract.
// The structs are that header's, byte for byte (the caller checks): kernels/ includes nothing of src/. Sums
// are in FP64 in a fixed order that depends on the sizes alone. Single-block kernels but SumSquares, which
// reads its tensors once, one block per chunk. Reference: src/ops/cpu/step_control_cpu.cc; test:
// tests/cuda/update_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

struct KernelSchedule {
  static constexpr int kMaxSegments = 16;
  int32_t num_segments;
  int32_t kind[kMaxSegments];  // 0 constant, 1 linear, 2 cosine
  int64_t until_tokens[kMaxSegments];
  double from[kMaxSegments], to[kMaxSegments];
};

struct KernelStepState {
  int64_t step, tokens, skipped;
  int32_t verdict, overflow;  // verdict: 0 good, 1 non-finite, 2 overflow
  double grad_norm, clip_factor, learning_rate, bias_speed, loss;
};

// partials[m, c] = sum of squares of rows [c * chunk_rows, ...) of matrix m; x is [matrices, rows, cols].
struct SquaresSlice {
  const void* x;
  double* partials;
  int64_t matrices, rows, cols;
  int64_t first_block;  // set by the launch
};
constexpr int kSquaresTensors = 64;
struct SquaresList {
  int count = 0;
  SquaresSlice tensors[kSquaresTensors];
};
// Of all tensors of the list in one launch, so that small ones cost no time of their own; kF32 or kF64.
cudaError_t SumSquaresChunks(KernelType type, SquaresList* list, int64_t chunk_rows, cudaStream_t stream);

// partials[c] = sum of addends[c * per_chunk, ...) of n, for the tensors of the list; a warp per chunk.
struct AddendsSlice {
  const double* addends;
  double* partials;
  int64_t n, per_chunk;
  int64_t first_warp;  // set by the launch
};
struct AddendsList {
  int count = 0;
  AddendsSlice tensors[kSquaresTensors];
};
cudaError_t SumAddendsOfChunks(AddendsList* list, cudaStream_t stream);

cudaError_t JudgeStepState(const double* partials, int64_t n, const double* loss_sum, double loss_scale,
                           double clip_norm, const KernelSchedule* learning_rate,
                           const KernelSchedule* bias_speed, KernelStepState* state, cudaStream_t stream);

cudaError_t FinishStepState(int64_t tokens_of_step, KernelStepState* state, cudaStream_t stream);

// bias kF32 or kF64 [E] or null; counts int64 [E], zeroed; previous int64 [E] or null: a good step's counts.
cudaError_t UpdateRouterBias(KernelType type, int64_t* counts, int64_t experts, const KernelStepState* state,
                             void* bias, int64_t* previous, cudaStream_t stream);

// scale[0] = the schedule's value at the state's tokens / valid[0]; 0 where valid is 0.
cudaError_t ScheduledLossScale(const int64_t* valid, const KernelSchedule* schedule,
                               const KernelStepState* state, double* scale, cudaStream_t stream);

}  // namespace yardmaster
