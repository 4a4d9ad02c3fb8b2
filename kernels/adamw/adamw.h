// File: kernels/adamw/adamw.h
//
// AdamW on many tensors in one launch; src/ops/adamw.h has the formula. Learning rate, step, clip factor and
// verdict are read from device memory; a bad verdict leaves everything untouched.
//
// Tensors are listed in the launch's arguments (a CUDA graph keeps them), up to kAdamWTensors a launch; a
// block takes a chunk of kAdamWChunk elements of one tensor. Reads master, grad, m, v and writes master, m,
// v, weight once, four elements at a time: memory-bound, 30 bytes an element with FP32 master and gradient,
// BF16 moments and weight (8 + 4 + 8 + 2 + ...). FP32 arithmetic (FP64 for FP64); powers of the betas in
// FP64. Reference: src/ops/cpu/adamw_cpu.cc; test: tests/cuda/update_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"
#include "kernels/step_control/step_control.h"

namespace yardmaster {

inline constexpr int kAdamWTensors = 56;  // the arguments of a launch fit in 4 KiB
inline constexpr int64_t kAdamWChunk = 1 << 14;

struct AdamWSlice {
  void* master;      // of `type`
  void* weight;      // BF16, or null
  const void* grad;  // of `type`
  void* m;           // moments
  void* v;
  int64_t n;
  double weight_decay;
  int64_t first_block;  // chunks of earlier tensors; set by AdamWSlices
};

struct AdamWList {
  int32_t count = 0;
  int64_t blocks = 0;
  AdamWSlice tensors[kAdamWTensors];
};

// type: kF32 or kF64, of masters and gradients. moments: kBf16, or `type`.
cudaError_t AdamWSlices(KernelType type, KernelType moments, AdamWList* list, double beta1, double beta2,
                        double eps, const KernelStepState* state, cudaStream_t stream);

}  // namespace yardmaster
