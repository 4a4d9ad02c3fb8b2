// File: kernels/common/kernel_type.h
//
// The element types of the kernels' floating-point tensors, and the call of a template by type.
#pragma once

#include <cstdint>

namespace yardmaster {

enum class KernelType : uint8_t { kBf16, kF32, kF64 };

}  // namespace yardmaster
