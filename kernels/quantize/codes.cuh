// File: kernels/quantize/codes.cuh
//
// Scales and codes of 8-bit and 4-bit formats on the device; src/tensor/small_float.h has the same on the
// host, bit for bit.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

inline constexpr uint32_t kInfinityBits = 0x7F800000u;

enum class ScaleRule { kExact, kPowerOfTwo, kMx };

// Of a run or block. A code is E4M3(x / scale), the division rounded to FP32; `inverse` and `second` are what
// Scaler makes it of. NaN all through where amax is not finite, so that every product is.
struct RunScale {
  float scale, inverse, second;
  uint8_t e8m0;
};

__device__ __forceinline__ uint8_t E8m0OfAmax(uint32_t bits) {
  if (bits >= kInfinityBits) return 0xFF;
  const int code = static_cast<int>(bits >> 23) - 8 + ((bits & 0x7FFFFFu) > 0x600000u ? 1 : 0);
  return static_cast<uint8_t>(code < 0 ? 0 : code);
}

// x / scale for values of type T: what comes of it in E4M3 is what comes of the quotient rounded to FP32. A zero
// keeps its sign.
//
// By a power of two a product does it.
template <ScaleRule kRule, class T>
struct Scaler {
  static constexpr bool kSecond = false;  // whether `second` is read
  float inverse;
  __device__ __forceinline__ Scaler(float inverse, float /*second*/) : inverse(inverse) {}
  __device__ __forceinline__ float operator()(float x) const { return x * inverse; }
};

// BF16 by another scale, in two instructions: with `inverse` cut to 16 bits the first product is exact, and `second`
// = (1 / scale) / inverse - 1, not negative, adds the rest. That is x / scale to 2^-38 of it, rounded once. A code
// depends on so little only where x / scale is nearly the middle of two codes. x and amax have 8 bits: x / (amax /
// 448) is such a middle or is away from it by 2^-13; and where it is one, what FP32 makes of x / scale is decided by
// 2^-32 of it at least. Every pair of x and amax gives the code of the division (compared on the host; the
// significands by tests/cuda/quantize_test.cc).
template <>
struct Scaler<ScaleRule::kExact, __nv_bfloat16> {
  static constexpr bool kSecond = true;
  float inverse, second;
  __device__ __forceinline__ Scaler(float inverse, float second) : inverse(inverse), second(second) {}
  __device__ __forceinline__ float operator()(float x) const {
    const float q = x * inverse;
    return fmaf(q, second, q);
  }
  static __device__ __forceinline__ RunScale Of(float scale) {
    const float cut = __uint_as_float(__float_as_uint(__frcp_rz(scale)) & 0xFFFFFF00u);
    const float rest = fmaf(-scale, cut, 1.0f);
    return {scale, cut, fmaf(rest, rest, rest), 0};
  }
};

// FP32 by another scale, which is `second`: Markstein's correction of the product with the rounded inverse is the
// quotient while the remainder is a normal number. Small scales and their values are lifted first, exactly:
// `inverse` is then -1 / (scale * kLift).
template <>
struct Scaler<ScaleRule::kExact, float> {
  static constexpr bool kSecond = true;
  static constexpr float kSmallScale = 0x1p-90f, kLift = 0x1p64f;
  float inverse, factor, scale;
  __device__ __forceinline__ Scaler(float inverse, float second)
      : inverse(fabsf(inverse)), factor(inverse < 0 ? kLift : 1.0f), scale(second * factor) {}
  __device__ __forceinline__ float operator()(float x) const {
    const float lifted = x * factor, q = lifted * inverse;
    const float corrected = fmaf(fmaf(-q, scale, lifted), inverse, q);
    return __uint_as_float(__float_as_uint(corrected) | (__float_as_uint(q) & 0x80000000u));
  }
  static __device__ __forceinline__ RunScale Of(float scale) {
    return {scale, scale < kSmallScale ? -__frcp_rn(scale * kLift) : __frcp_rn(scale), scale, 0};
  }
};

// Of values of type T whose largest magnitude has these bits.
template <ScaleRule kRule, class T>
__device__ __forceinline__ RunScale ScaleOfAmax(uint32_t bits) {
  const float nan = __uint_as_float(0x7FFFFFFFu);
  if (bits >= kInfinityBits) return {nan, nan, nan, 0xFF};
  if constexpr (kRule == ScaleRule::kMx) {
    const uint8_t code = E8m0OfAmax(bits);
    return {0, __uint_as_float(static_cast<uint32_t>(254 - code) << 23), 0, code};
  } else if constexpr (kRule == ScaleRule::kPowerOfTwo) {
    if (bits == 0) return {1, 1, 0, 0};
    const uint32_t code = max(static_cast<uint32_t>(E8m0OfAmax(bits)), 1u);
    return {__uint_as_float(code << 23), __uint_as_float((254 - code) << 23), 0, 0};
  } else {
    if (bits == 0) return Scaler<kRule, T>::Of(1);
    return Scaler<kRule, T>::Of(fmaxf(__fdiv_rn(__uint_as_float(bits), 448.0f), 0x1p-126f));
  }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
// Where no instruction converts (src/tensor/small_float.h explains). Not inlined: there are 128 of them in a
// kernel.
static __device__ __noinline__ uint32_t E4m3InSoftware(float v) {
  const uint32_t bits = __float_as_uint(v), m = bits & 0x7FFFFFFFu, sign = bits >> 24 & 0x80u;
  if (m > kInfinityBits) return 0x7F;
  if (m >= 0x43E00000u) return sign | 0x7E;
  if (m < 0x3C800000u) return sign | (__float_as_uint(__uint_as_float(m) + 16384.0f) - 0x46800000u);
  return sign | (((m + 0x7FFFFu + (m >> 20 & 1u)) >> 20) - (120u << 3));
}
#endif

// Two E4M3 codes, `low` in the low byte; saturating, ties to even, NaN 0x7F.
__device__ __forceinline__ uint32_t E4m3x2(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  return E4m3InSoftware(low) | E4m3InSoftware(high) << 8;
#else
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
#endif
}
__device__ __forceinline__ uint32_t E4m3x4(float a, float b, float c, float d) {
  return E4m3x2(a, b) | E4m3x2(c, d) << 16;
}
__device__ __forceinline__ float E4m3ToFloat(uint8_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}
__device__ __forceinline__ float E8m0ToFloat(uint8_t code) {
  return __uint_as_float(code == 0xFF ? 0x7FFFFFFFu
                         : code == 0  ? 0x00400000u
                                      : static_cast<uint32_t>(code) << 23);
}

// E2M1, ties to the even code, saturating at 6.
__device__ __forceinline__ uint32_t E2m1(float v) {
  const float m = fabsf(v);
  const uint32_t code = m <= 0.25f   ? 0
                        : m < 0.75f  ? 1
                        : m <= 1.25f ? 2
                        : m < 1.75f  ? 3
                        : m <= 2.5f  ? 4
                        : m < 3.5f   ? 5
                        : m <= 5.0f  ? 6
                                     : 7;
  return code | (__float_as_uint(v) >> 28 & 8u);
}
__device__ __forceinline__ float E2m1ToFloat(uint32_t code) {
  const uint32_t m = code & 7u;
  const float v = m < 5 ? 0.5f * static_cast<float>(m) : m == 5 ? 3.0f : m == 6 ? 4.0f : 6.0f;
  return code & 8u ? -v : v;
}

}  // namespace yardmaster
