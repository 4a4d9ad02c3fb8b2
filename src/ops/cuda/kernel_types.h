// File: src/ops/cuda/kernel_types.h
#pragma once

#include "kernels/common/kernel_type.h"
#include "src/base/check.h"
#include "src/tensor/dtype.h"

namespace yardmaster::cuda {

inline KernelType KernelTypeOf(DType t) {
  switch (t) {
    case DType::kBF16: return KernelType::kBf16;
    case DType::kF32: return KernelType::kF32;
    case DType::kF64: return KernelType::kF64;
    default: break;
  }
  YM_CHECK(false, "no kernel computes in ", DTypeName(t));
  return KernelType::kF32;
}

}  // namespace yardmaster::cuda
