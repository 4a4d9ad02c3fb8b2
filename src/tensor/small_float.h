// File: src/tensor/small_float.h
//
// The 8-bit and 4-bit floats of quantised matrices, on the host. Encoding rounds to nearest even and
// saturates; decoding is exact in FP32. Sources: OCP 8-bit Floating Point Specification 1.0 (E4M3), OCP
// Microscaling Formats 1.0 (E8M0, E2M1).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace yardmaster {

// E4M3: sign, 4 bits of exponent (bias 7), 3 of mantissa. No infinity; largest 448, smallest normal 2^-6,
// step below it 2^-9. NaN is 0x7F (0xFF decodes to NaN too, and is never written).
inline constexpr float kE4m3Max = 448.0f;
inline constexpr uint8_t kE4m3Nan = 0x7F;

inline uint8_t E4m3FromFloat(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return kE4m3Nan;
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  if (magnitude >= 0x43E00000u) return sign | 0x7E;  // 448 and more, infinity included
  uint32_t code;
  if (magnitude < 0x3C800000u) {
    // Below 2^-6: adding 2^14, whose step is 2^-9, rounds to steps of 2^-9; 8 of them are the smallest
    // normal.
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 16384.0f) - 0x46800000u;
  } else {
    const uint32_t rounded = magnitude + 0x7FFFFu + (magnitude >> 20 & 1u);  // 20 bits go, ties to even
    code = (rounded >> 20) - (120u << 3);                                    // exponent bias 127 to 7
  }
  return static_cast<uint8_t>(sign | code);
}

inline float E4m3ToFloat(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24, magnitude = code & 0x7Fu;
  if (magnitude == kE4m3Nan) return std::numeric_limits<float>::quiet_NaN();
  const float value = magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9f
                                    : std::bit_cast<float>((magnitude + (120u << 3)) << 20);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

// E8M0: 2^(code - 127), 255 is NaN. The smallest, 2^-127, is a subnormal of FP32.
inline constexpr uint8_t kE8m0Nan = 0xFF;

inline float E8m0ToFloat(uint8_t code) {
  if (code == kE8m0Nan) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}
// 2^(127 - code): what a value is multiplied by to be encoded. Exact, and finite for every code below 254.
inline float E8m0Inverse(uint8_t code) {
  if (code == kE8m0Nan) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(code == 254 ? 0x00400000u : static_cast<uint32_t>(254 - code) << 23);
}

// The scale of a block with the largest magnitude `amax`: the smallest power of two with amax <= 448 * scale,
// at least 2^-127; code 0 for a zero block; NaN where amax is infinite or NaN. 448 is 1.75 * 2^8, so the
// exponent of amax less 8, and one more where its mantissa is over 1.75.
inline uint8_t E8m0ForAmax(float amax) {
  const auto bits = std::bit_cast<uint32_t>(amax);
  if (bits >= 0x7F800000u) return kE8m0Nan;
  const int code = static_cast<int>(bits >> 23) - 8 + ((bits & 0x7FFFFFu) > 0x600000u ? 1 : 0);
  return static_cast<uint8_t>(code < 0 ? 0 : code);
}

// E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; no infinity, no NaN.
inline constexpr float kE2m1Max = 6.0f;

inline uint8_t E2m1FromFloat(float v) {  // of a NaN: 6
  const float m = v < 0 ? -v : v;
  const auto sign = static_cast<uint8_t>(std::bit_cast<uint32_t>(v) >> 28 & 8u);
  // Half-way values go to the even code.
  const int code = m <= 0.25f   ? 0
                   : m < 0.75f  ? 1
                   : m <= 1.25f ? 2
                   : m < 1.75f  ? 3
                   : m <= 2.5f  ? 4
                   : m < 3.5f   ? 5
                   : m <= 5.0f  ? 6
                                : 7;
  return static_cast<uint8_t>(sign | code);
}
inline float E2m1ToFloat(uint8_t code) {
  constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return code & 8 ? -kValues[code & 7] : kValues[code & 7];
}

}  // namespace yardmaster
