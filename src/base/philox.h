// File: src/base/philox.h
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): a counter-based generator.
// A value depends on (seed, stream, index) alone, never on who draws it or in what order, so that initialisation and
// shuffles do not depend on the number of ranks.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace yardmaster {

inline std::array<uint32_t, 4> Philox4x32(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1), c3 = static_cast<uint32_t>(p0), c0 = n0, c2 = n2;
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

// Uniform in [0, 1) with 53 bits.
inline double PhiloxUniform(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto r = Philox4x32(seed, stream, index);
  return static_cast<double>((uint64_t{r[0]} << 32 | r[1]) >> 11) * 0x1.0p-53;
}

// Logarithm and cosine whose operations IEEE 754 defines (fused multiply-adds where written so): the same
// bits from every compiler and on every device, which the library's functions do not give. Errors are a few
// units in the last place. kernels/random/normal.cu repeats them, operation by operation.
//
// log u, 0 < u < 1 and not subnormal: u = 2^e m with m in (sqrt(1/2), sqrt 2], s = (m - 1) / (m + 1),
//   log u = e log 2 + 2 s (1 + s^2/3 + s^4/5 + ...)
inline double PortableLog(double u) {
  const uint64_t bits = std::bit_cast<uint64_t>(u);
  double e = static_cast<double>(static_cast<int>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (m > 0x1.6a09e667f3bcdp+0) m *= 0.5, e += 1;
  const double s = (m - 1) / (m + 1), z = s * s;
  double series = 1.0 / 23;
  for (int k = 21; k >= 1; k -= 2) series = std::fma(series, z, 1.0 / k);
  const double log_m = 2 * s * series;
  return std::fma(e, 0x1.62e42fee00000p-1, std::fma(e, 0x1.a39ef35793c76p-33, log_m));  // log 2 in two parts
}

// cos(2 pi v), 0 <= v < 1: quarter turns taken off exactly, then the Taylor series of cosine or sine up to pi
// / 4.
inline double PortableCosTurns(double v) {
  const double quarters = 4 * v, nearest = std::floor(quarters + 0.5);
  const double x = (quarters - nearest) * 1.5707963267948966;
  const double z = x * x;
  const int quarter = static_cast<int>(nearest) & 3;
  if (quarter % 2 == 0) {
    double series = 1.0 / 20922789888000;  // 16!
    series = std::fma(series, z, -1.0 / 87178291200);
    series = std::fma(series, z, 1.0 / 479001600);
    series = std::fma(series, z, -1.0 / 3628800);
    series = std::fma(series, z, 1.0 / 40320);
    series = std::fma(series, z, -1.0 / 720);
    series = std::fma(series, z, 1.0 / 24);
    series = std::fma(series, z, -0.5);
    series = std::fma(series, z, 1.0);
    return quarter == 0 ? series : -series;
  }
  double series = 1.0 / 355687428096000;  // 17!
  series = std::fma(series, z, -1.0 / 1307674368000);
  series = std::fma(series, z, 1.0 / 6227020800);
  series = std::fma(series, z, -1.0 / 39916800);
  series = std::fma(series, z, 1.0 / 362880);
  series = std::fma(series, z, -1.0 / 5040);
  series = std::fma(series, z, 1.0 / 120);
  series = std::fma(series, z, -1.0 / 6);
  series = std::fma(series, z, 1.0);
  const double sine = x * series;
  return quarter == 1 ? -sine : sine;
}

// Standard normal by Box-Muller on one Philox block.
inline double PhiloxNormal(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto r = Philox4x32(seed, stream, index);
  const double u = (static_cast<double>((uint64_t{r[0]} << 32 | r[1]) >> 11) + 0.5) * 0x1.0p-53;
  const double v = static_cast<double>((uint64_t{r[2]} << 32 | r[3]) >> 11) * 0x1.0p-53;
  return std::sqrt(-2.0 * PortableLog(u)) * PortableCosTurns(v);
}

// FNV-1a: turns a name into a stream number.
inline uint64_t StreamOf(const char* name) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (; *name; ++name) h = (h ^ static_cast<unsigned char>(*name)) * 0x100000001b3ull;
  return h;
}

}  // namespace yardmaster
