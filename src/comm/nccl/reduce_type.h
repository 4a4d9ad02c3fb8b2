// File: src/comm/nccl/reduce_type.h
//
// What kernels/reduce calls a type, and where it puts squares. Private to src/comm.
#pragma once

#include "kernels/reduce/ordered_reduce.h"
#include "src/base/check.h"
#include "src/comm/communicator.h"
#include "src/tensor/dtype.h"

namespace yardmaster {

// A bug where values of this type are not added.
inline ReduceType ReduceTypeOf(DType t, const char* group) {
  switch (t) {
    case DType::kF32: return ReduceType::kF32;
    case DType::kF64: return ReduceType::kF64;
    case DType::kI32: return ReduceType::kI32;
    case DType::kI64: return ReduceType::kI64;
    default: break;
  }
  YM_CHECK(false, group, ": no reduction of ", DTypeName(t));
  return ReduceType::kF32;
}

static_assert(kOrderedReduceRun == kSquaresRun);

// Of the run that begins at element `done` of a range whose squares are at `squares` (null: not wanted).
inline double* SquaresAt(double* squares, int64_t done) {
  return squares == nullptr ? nullptr : squares + done / kSquaresRun;
}

}  // namespace yardmaster
