// File: src/ops/cpu/math.h
//
// What the cpu ops' inner loops share. All of it vectorises without -ffast-math: exp without a
// library call, and sums over a fixed number of lanes, whose order depends on the length alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace yardmaster::cpu {

// e^x. For float: 2^n * e^r with r in [-ln2/2, ln2/2] and a polynomial of degree 6 (Cephes' expf,
// S. Moshier); about 1 ulp, denormal results included; NaN, inf and -inf as std::exp.
inline float Exp(float x) {
  x = x < -104.0f ? -104.0f : x;  // below: 0; NaN stays
  x = x > 89.0f ? 89.0f : x;      // above: inf
  const float shifted =
      x * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer in the low bits
  const float n = shifted - 12582912.0f;
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  int32_t exponent;
  std::memcpy(&exponent, &shifted, 4);
  exponent -= 0x4B400000;  // n as an integer, in [-151, 129]
  const int32_t half = exponent >> 1,
                rest = exponent - half;  // two factors, so that 2^-150 and 2^128 are reached
  const int32_t bits1 = static_cast<int32_t>(static_cast<uint32_t>(half + 127) << 23);
  const int32_t bits2 = static_cast<int32_t>(static_cast<uint32_t>(rest + 127) << 23);
  float scale1, scale2;
  std::memcpy(&scale1, &bits1, 4);
  std::memcpy(&scale2, &bits2, 4);
  return p * scale1 * scale2;
}
inline double Exp(double x) { return std::exp(x); }

template <class T>
T Sigmoid(T z) {
  return T{1} / (T{1} + Exp(-z));
}

inline constexpr int kLanes = 16;

// Sum over i of f(i), i in [0, n): lane l adds i = l, l + 16, ...; the lanes are added in pairs.
template <class T, class F>
T LaneSum(int64_t n, F&& f) {
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += static_cast<T>(f(i + l));
  }
  for (int l = 0; i < n; ++i, ++l) lanes[l] += static_cast<T>(f(i));
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

template <class T>
T LaneMax(const T* x, int64_t n) {  // n >= 1; what it returns for a NaN is unspecified
  T lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = x[0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  }
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  for (int l = 1; l < kLanes; ++l) lanes[0] = lanes[l] > lanes[0] ? lanes[l] : lanes[0];
  return lanes[0];
}

}  // namespace yardmaster::cpu
