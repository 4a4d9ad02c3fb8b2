// File: src/tensor/dtype.h
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "src/base/check.h"

namespace yardmaster {

enum class DType : uint8_t { kU8, kU16, kI32, kI64, kBF16, kF32, kF64 };

constexpr int64_t DTypeBytes(DType t) {
  switch (t) {
    case DType::kU8: return 1;
    case DType::kU16: case DType::kBF16: return 2;
    case DType::kI32: case DType::kF32: return 4;
    case DType::kI64: case DType::kF64: return 8;
  }
  return 0;
}

inline const char* DTypeName(DType t) {  // the names of safetensors
  switch (t) {
    case DType::kU8: return "U8";
    case DType::kU16: return "U16";
    case DType::kI32: return "I32";
    case DType::kI64: return "I64";
    case DType::kBF16: return "BF16";
    case DType::kF32: return "F32";
    case DType::kF64: return "F64";
  }
  return "?";
}

// False, and *dtype as it was, for a name that is not one of ours.
inline bool DTypeFromName(const std::string& name, DType* dtype) {
  for (const DType t : {DType::kU8, DType::kU16, DType::kI32, DType::kI64, DType::kBF16, DType::kF32, DType::kF64})
    if (name == DTypeName(t)) return *dtype = t, true;
  return false;
}

// Storage type of the CPU device for BF16; rounds to nearest even, keeps NaN.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float f) {
    uint32_t u;
    std::memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) { bits = static_cast<uint16_t>(u >> 16 | 0x40); return; }
    bits = static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    const uint32_t u = static_cast<uint32_t>(bits) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
  }
};

template <class T> struct DTypeOf;
template <> struct DTypeOf<uint8_t> { static constexpr DType value = DType::kU8; };
template <> struct DTypeOf<uint16_t> { static constexpr DType value = DType::kU16; };
template <> struct DTypeOf<int32_t> { static constexpr DType value = DType::kI32; };
template <> struct DTypeOf<int64_t> { static constexpr DType value = DType::kI64; };
template <> struct DTypeOf<BFloat16> { static constexpr DType value = DType::kBF16; };
template <> struct DTypeOf<float> { static constexpr DType value = DType::kF32; };
template <> struct DTypeOf<double> { static constexpr DType value = DType::kF64; };

// Calls f.template operator()<float>() or <double>(): the two compute types of the CPU device.
template <class F>
decltype(auto) DispatchFloat(DType t, F&& f) {
  YM_CHECK(t == DType::kF32 || t == DType::kF64, "the cpu device computes in F32 or F64, not ", DTypeName(t));
  return t == DType::kF32 ? f.template operator()<float>() : f.template operator()<double>();
}

}  // namespace yardmaster
