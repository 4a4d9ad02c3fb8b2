// File: src/base/philox.h
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): a counter-based generator.
// A value depends on (seed, stream, index) alone, never on who draws it or in what order, so that initialisation and
// shuffles do not depend on the number of ranks.
#pragma once

#include <array>
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

// Standard normal by Box-Muller on one Philox block.
inline double PhiloxNormal(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto r = Philox4x32(seed, stream, index);
  const double u = (static_cast<double>((uint64_t{r[0]} << 32 | r[1]) >> 11) + 0.5) * 0x1.0p-53;
  const double v = static_cast<double>((uint64_t{r[2]} << 32 | r[3]) >> 11) * 0x1.0p-53;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586477 * v);
}

// FNV-1a: turns a name into a stream number.
inline uint64_t StreamOf(const char* name) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (; *name; ++name) h = (h ^ static_cast<unsigned char>(*name)) * 0x100000001b3ull;
  return h;
}

}  // namespace yardmaster
