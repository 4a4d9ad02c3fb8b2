#include "src/base/hash.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace yardmaster {
namespace {

// Slicing by eight: table[k][b] is the crc of byte b followed by k zero bytes.
struct Crc32cTables {
  uint32_t table[8][256];
  constexpr Crc32cTables() : table() {
    for (uint32_t b = 0; b < 256; ++b) {
      uint32_t crc = b;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
      table[0][b] = crc;
    }
    for (int k = 1; k < 8; ++k)
      for (uint32_t b = 0; b < 256; ++b)
        table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 0xff];
  }
};
constexpr Crc32cTables kCrc32c;

}  // namespace

namespace internal {

uint32_t Crc32cTable(const void* data, size_t bytes, uint32_t seed) {
  const unsigned char* p = static_cast<const unsigned char*>(data);
  const auto& t = kCrc32c.table;
  uint32_t crc = ~seed;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    const uint32_t low =
        crc ^ (uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24);
    crc = t[7][low & 0xff] ^ t[6][low >> 8 & 0xff] ^ t[5][low >> 16 & 0xff] ^ t[4][low >> 24] ^  //
          t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
  }
  for (; bytes > 0; --bytes, ++p) crc = (crc >> 8) ^ t[0][(crc ^ *p) & 0xff];
  return ~crc;
}

#if defined(__x86_64__)
bool HaveCrc32cHardware() { return __builtin_cpu_supports("sse4.2"); }

__attribute__((target("sse4.2"))) uint32_t Crc32cHardware(const void* data, size_t bytes, uint32_t seed) {
  const unsigned char* p = static_cast<const unsigned char*>(data);
  uint64_t crc = static_cast<uint32_t>(~seed);
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  uint32_t tail = static_cast<uint32_t>(crc);
  for (; bytes > 0; --bytes, ++p) tail = _mm_crc32_u8(tail, *p);
  return ~tail;
}
#else
bool HaveCrc32cHardware() { return false; }

uint32_t Crc32cHardware(const void* data, size_t bytes, uint32_t seed) {
  return Crc32cTable(data, bytes, seed);
}
#endif

}  // namespace internal

uint32_t Crc32c(const void* data, size_t bytes, uint32_t seed) {
  static const bool hardware = internal::HaveCrc32cHardware();
  return hardware ? internal::Crc32cHardware(data, bytes, seed) : internal::Crc32cTable(data, bytes, seed);
}

namespace {

// FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kSha256Constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t RotateRight(uint32_t x, int n) { return x >> n | x << (32 - n); }

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
      block_{},
      bytes_(0) {}

void Sha256::Compress(const unsigned char* block) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i, block += 4)
    w[i] = uint32_t{block[0]} << 24 | uint32_t{block[1]} << 16 | uint32_t{block[2]} << 8 | uint32_t{block[3]};
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = RotateRight(w[i - 15], 7) ^ RotateRight(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = RotateRight(w[i - 2], 17) ^ RotateRight(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t sum1 = RotateRight(e, 6) ^ RotateRight(e, 11) ^ RotateRight(e, 25);
    const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kSha256Constants[i] + w[i];
    const uint32_t sum0 = RotateRight(a, 2) ^ RotateRight(a, 13) ^ RotateRight(a, 22);
    const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state_[i] += sums[i];
}

void Sha256::Update(const void* data, size_t bytes) {
  const unsigned char* p = static_cast<const unsigned char*>(data);
  size_t filled = bytes_ % 64;
  bytes_ += bytes;
  while (bytes > 0) {
    if (filled == 0 && bytes >= 64) {
      Compress(p);
      p += 64, bytes -= 64;
      continue;
    }
    const size_t take = std::min(bytes, 64 - filled);
    std::memcpy(block_.data() + filled, p, take);
    p += take, bytes -= take, filled += take;
    if (filled == 64) Compress(block_.data()), filled = 0;
  }
}

std::string Sha256::HexDigest() {
  const uint64_t bits = bytes_ * 8;
  const unsigned char one = 0x80, zero = 0;
  Update(&one, 1);
  while (bytes_ % 64 != 56) Update(&zero, 1);
  unsigned char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
  Update(length, 8);
  static const char digits[] = "0123456789abcdef";
  std::string out;
  for (const uint32_t word : state_)
    for (int shift = 28; shift >= 0; shift -= 4) out += digits[word >> shift & 15];
  return out;
}

}  // namespace yardmaster
