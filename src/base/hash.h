// File: src/base/hash.h
//
// Crc32c (Castagnoli, reflected 0x82F63B78): guards against damaged bytes. Crc32c("123456789") = 0xe3069283.
// Sha256 (FIPS 180-4): fingerprints of data sets and of training state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace yardmaster {

uint32_t Crc32c(const void* data, size_t bytes, uint32_t seed = 0);  // seed: the crc of the bytes before

namespace internal {
uint32_t Crc32cTable(const void* data, size_t bytes, uint32_t seed);     // any CPU
uint32_t Crc32cHardware(const void* data, size_t bytes, uint32_t seed);  // only where HaveCrc32cHardware()
bool HaveCrc32cHardware();                                               // SSE4.2
}  // namespace internal

class Sha256 {
 public:
  Sha256();
  void Update(const void* data, size_t bytes);
  void Update(std::string_view text) { Update(text.data(), text.size()); }
  std::string HexDigest();  // 64 lower-case characters; call once

 private:
  std::array<uint32_t, 8> state_;
  std::array<unsigned char, 64> block_;
  uint64_t bytes_ = 0;
  void Compress(const unsigned char* block);
};

}  // namespace yardmaster
