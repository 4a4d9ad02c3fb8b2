#include "src/base/hash.h"

#include <string>
#include <vector>

#include "tests/catch.h"

namespace yardmaster {
namespace {

void CheckCrc(uint32_t (*crc)(const void*, size_t, uint32_t)) {
  const std::vector<char> zeros(32, 0), ones(32, '\xff');
  CHECK(crc(zeros.data(), 32, 0) == 0x8a9136aau);
  CHECK(crc(ones.data(), 32, 0) == 0x62a8ab43u);
  CHECK(crc("123456789", 9, 0) == 0xe3069283u);
  CHECK(crc("", 0, 0) == 0u);
  // The masked form of TensorBoard: a rotation and a constant.
  const uint32_t c =
      crc("\x1a\x11"
          "CRC test, one two",
          19, 0);
  CHECK(((c >> 15) | (c << 17)) + 0xa282ead8u == 0x5794d08au);
}

TEST_CASE("crc32c by table") { CheckCrc(internal::Crc32cTable); }

TEST_CASE("crc32c by instruction") {
  if (!internal::HaveCrc32cHardware()) YM_SKIP("this CPU has no CRC32C instruction");
  CheckCrc(internal::Crc32cHardware);
}

TEST_CASE("crc32c is the same by both ways, for every length and alignment, and goes on from a seed") {
  std::vector<unsigned char> data(300);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 151 + 7);
  for (size_t begin = 0; begin < 9; ++begin)
    for (size_t n = 0; begin + n <= 100; ++n) {
      const uint32_t expected = internal::Crc32cTable(data.data() + begin, n, 5);
      REQUIRE(Crc32c(data.data() + begin, n, 5) == expected);
    }
  const uint32_t whole = Crc32c(data.data(), 300);
  for (const size_t cut : {0, 1, 7, 8, 64, 299, 300})
    CHECK(Crc32c(data.data() + cut, 300 - cut, Crc32c(data.data(), cut)) == whole);
}

std::string Sha(const std::string& text) {
  Sha256 sha;
  sha.Update(text);
  return sha.HexDigest();
}

// FIPS 180-4's examples (NIST, "SHA256.pdf") and the digest of nothing.
TEST_CASE("sha256 gives the digests of FIPS 180-4") {
  CHECK(Sha("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(Sha("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(Sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(Sha(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256 does not depend on how the bytes arrive") {
  const std::string text(257, 'q');
  Sha256 pieces;
  for (size_t i = 0; i < text.size(); i += 13) pieces.Update(text.substr(i, 13));
  CHECK(pieces.HexDigest() == Sha(text));
}

}  // namespace
}  // namespace yardmaster
