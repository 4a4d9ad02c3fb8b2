#include "src/base/philox.h"

#include <set>

#include "tests/catch.h"

namespace yardmaster {
namespace {

using Words = std::array<uint32_t, 4>;

// Random123's kat_vectors, philox4x32 with 10 rounds.
TEST_CASE("philox gives the known answers of Random123") {
  CHECK(Philox4x32(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox4x32(~0ull, ~0ull, ~0ull) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // Counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0: the order of the words.
  CHECK(Philox4x32(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform and normal numbers have their moments") {
  double sum = 0, square = 0, normal = 0, normal_square = 0;
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    const double u = PhiloxUniform(7, 1, i), z = PhiloxNormal(7, 2, i);
    REQUIRE((u >= 0 && u < 1));
    sum += u, square += u * u, normal += z, normal_square += z * z;
  }
  CHECK(sum / n == Approx(0.5).margin(0.01));
  CHECK(square / n == Approx(1.0 / 3).margin(0.01));
  CHECK(normal / n == Approx(0.0).margin(0.03));
  CHECK(normal_square / n == Approx(1.0).margin(0.04));
}

TEST_CASE("names become different streams") {
  const std::set<uint64_t> streams = {StreamOf(""), StreamOf("a"), StreamOf("b"), StreamOf("ab"),
                                      StreamOf("ba")};
  CHECK(streams.size() == 5);
  CHECK(StreamOf("a") == 0xaf63dc4c8601ec8cull);  // FNV-1a's own vector
}

}  // namespace
}  // namespace yardmaster
