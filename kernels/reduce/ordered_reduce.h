// File: kernels/reduce/ordered_reduce.h
//
// The arithmetic of a collective: values of several ranks, which lie in this rank's memory already, are added
// (or their maximum taken) element by element in ascending rank order, beginning with rank 0's value. The
// order, and so the bits, depend on the ranks alone, never on how the values travelled.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

enum class ReduceType : uint8_t { kF32, kF64, kI32, kI64 };

struct OrderedReduceArgs {
  ReduceType type;
  bool maximum = false;  // else the sum; a NaN wins a maximum
  const void* parts;     // the other ranks' values, by rank: row i, of `stride` elements, is the i-th without `own`
  int64_t stride;
  int ranks;
  int own;                 // the rank whose values lie in own_values
  const void* own_values;  // may be `out`
  void* out;               // [n]
  int64_t n;
};
// Memory-bound: reads ranks * n and writes n elements once. No shared memory, no atomics.
cudaError_t OrderedReduce(const OrderedReduceArgs& args, cudaStream_t stream);

}  // namespace yardmaster
