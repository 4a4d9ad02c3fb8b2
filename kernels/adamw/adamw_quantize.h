// File: kernels/adamw/adamw_quantize.h
//
// AdamW on one FP32 weight [L, N, K] and its 8-bit copies in one pass: what kernels/adamw does, then what
// QuantizeExpertWeights (kernels/quantize) makes of the new master rounded to BF16. The rounded weight is never
// stored. A bad verdict leaves everything untouched, copies included.
//
// A block of 256 threads takes 128 x 128 elements (kernels/quantize/tile.cuh), each thread 8 x 8 of them. Reads
// master, grad, m, v and writes master, m, v and both copies once: memory-bound, 22 bytes an element with BF16
// moments; apart, AdamW and quantising the master take 26. H200: 1.34 ms for 235 M elements (kMx 1.40), 96 % of
// the rate of AdamW with a BF16 weight; apart 1.53.
// Test: tests/cuda/quantize_test.cc.
#pragma once

#include "kernels/common/kernel_type.h"
#include "kernels/quantize/quantize.h"
#include "kernels/step_control/step_control.h"

namespace yardmaster {

struct AdamWWeight {
  float* master;
  const float* grad;
  void* m;  // moments: kBf16 or kF32
  void* v;
  int64_t L, N, K;  // N and K multiples of 16
  double weight_decay;
};

cudaError_t AdamWQuantize(KernelType moments, QuantRule rule, const AdamWWeight& w, double beta1, double beta2,
                          double eps, const KernelStepState* state, const QuantCopies& to, cudaStream_t stream);

}  // namespace yardmaster
