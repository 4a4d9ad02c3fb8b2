// File: kernels/reduce/ordered_reduce.h
//
// The arithmetic of a collective: values of several ranks, which lie in this rank's memory already, are added
// (or their maximum taken) element by element in ascending rank order, beginning with rank 0's value. The
// order, and so the bits, depend on the ranks alone, never on how the values travelled.
//
// A sum may be squared on its way, so that a norm of it need not read it again: in FP64, one value for each
// run of kOrderedReduceRun elements. Its order of additions depends on the run's length alone, not on the
// width of the loads, on where the run lies or on the number of thread blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

enum class ReduceType : uint8_t { kF32, kF64, kI32, kI64 };

inline constexpr int64_t kOrderedReduceRun = 2048;  // elements

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
  // [ceil(n / kOrderedReduceRun)]: [i] = sum of the squares of out[i * kOrderedReduceRun, ...), of a sum in
  // kF32 or kF64 alone; null: not wanted.
  double* squares = nullptr;
};
// Memory-bound: reads ranks * n and writes n elements once. No shared memory, no atomics. Test:
// tests/cuda/reduce_test.cc.
cudaError_t OrderedReduce(const OrderedReduceArgs& args, cudaStream_t stream);

}  // namespace yardmaster
