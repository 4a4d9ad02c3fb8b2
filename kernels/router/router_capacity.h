// File: kernels/router/router_capacity.h
//
// Which (token, expert) pairs an expert's capacity keeps; src/ops/router_capacity.h has the contract.
//
// Pairs are sorted by expert, in token order (kernels/common/counting_sort.cuh); then a block per expert
// keeps the first C of them, or the C of the largest weight: the C-th largest is found digit by digit (8 bits
// each, four passes over FP32 keys, eight over FP64), and of the pairs that equal it the first stay. Integer
// atomics alone: the same bits in every run. Reads a pair's weight once per digit from L2; bound by latency,
// the more so the more pairs one expert has. Reference: src/ops/cpu/router_capacity_cpu.cc; test:
// tests/ops/router_capacity_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

struct CapacityPairs {
  const int32_t* idx;  // [pairs]: expert of each pair; one of no expert is dropped and not counted
  int64_t pairs;
  int64_t experts;     // at most 6144
  int64_t capacity;    // C
  bool by_weight;      // else by position
  int32_t* kept;       // [pairs]: idx or -1
  double* dropped;     // [1], added to; may be null
  int64_t chunk;       // pairs of a chunk of the sort, a multiple of 32
  int64_t* prefix;     // [experts, chunks], scratch
  int64_t* starts;     // [experts + 1], scratch
  int64_t* by_expert;  // [pairs], scratch
};
// w [pairs], kF32 or kF64: a NaN is the smallest, and -0 equals 0.
cudaError_t KeepWithinCapacity(KernelType type, const CapacityPairs& args, const void* w,
                               cudaStream_t stream);

}  // namespace yardmaster
