// File: kernels/quantize/codes.cuh
//
// Scales and codes of 8-bit and 4-bit formats on the device; src/tensor/small_float.h has the same on the
// host, bit for bit.
#pragma once

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

inline constexpr uint32_t kInfinityBits = 0x7F800000u;

enum class ScaleRule { kExact, kPowerOfTwo, kMx };

// Of a run or block whose largest magnitude has these bits. A code is E4M3(x / scale); `inverse` is 1 /
// scale, exact for powers of two; of an exact scale under kSmallScale it is -1 / (scale * kLift). NaN all
// through where amax is not finite, so that every product is.
inline constexpr float kSmallScale = 0x1p-90f, kLift = 0x1p64f;
struct RunScale {
  float scale, inverse;
  uint8_t e8m0;
};

__device__ __forceinline__ uint8_t E8m0OfAmax(uint32_t bits) {
  if (bits >= kInfinityBits) return 0xFF;
  const int code = static_cast<int>(bits >> 23) - 8 + ((bits & 0x7FFFFFu) > 0x600000u ? 1 : 0);
  return static_cast<uint8_t>(code < 0 ? 0 : code);
}

template <ScaleRule kRule>
__device__ __forceinline__ RunScale ScaleOfAmax(uint32_t bits) {
  const float nan = __uint_as_float(0x7FFFFFFFu);
  if (bits >= kInfinityBits) return {nan, nan, 0xFF};
  if constexpr (kRule == ScaleRule::kMx) {
    const uint8_t code = E8m0OfAmax(bits);
    return {0, __uint_as_float(static_cast<uint32_t>(254 - code) << 23), code};
  } else {
    if (bits == 0) return {1, 1, 0};
    if constexpr (kRule == ScaleRule::kPowerOfTwo) {
      const uint32_t code = max(static_cast<uint32_t>(E8m0OfAmax(bits)), 1u);
      return {__uint_as_float(code << 23), __uint_as_float((254 - code) << 23), 0};
    } else {
      const float scale = fmaxf(__fdiv_rn(__uint_as_float(bits), 448.0f), 0x1p-126f);
      return {scale, scale < kSmallScale ? -__frcp_rn(scale * kLift) : __frcp_rn(scale), 0};
    }
  }
}

// x / scale rounded once. By a power of two a product does it; else Markstein's correction of the product
// with the rounded inverse, which is exact while the remainder is a normal number: small scales and their
// values are lifted first, exactly. A zero keeps its sign.
template <ScaleRule kRule>
class Scaler {
 public:
  __device__ __forceinline__ Scaler(float scale, float inverse) : inverse_(inverse) {
    if constexpr (kRule == ScaleRule::kExact) {
      factor_ = inverse < 0 ? kLift : 1.0f;
      scale_ = scale * factor_;
      inverse_ = fabsf(inverse);
    }
  }
  __device__ __forceinline__ float operator()(float x) const {
    if constexpr (kRule != ScaleRule::kExact) return x * inverse_;
    const float lifted = x * factor_, q = lifted * inverse_;
    const float corrected = fmaf(fmaf(-q, scale_, lifted), inverse_, q);
    return __uint_as_float(__float_as_uint(corrected) | (__float_as_uint(q) & 0x80000000u));
  }

 private:
  float inverse_, factor_ = 1, scale_ = 1;
};

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
