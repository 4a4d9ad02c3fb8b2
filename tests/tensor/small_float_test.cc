#include "src/tensor/small_float.h"

#include <cmath>
#include <vector>

#include "tests/catch.h"

namespace yardmaster {
namespace {

// The nearest of `values` (ascending, by code), the even code of two that are as near: found by comparison, in double.
int NearestCode(const std::vector<double>& values, double v) {
  int best = 0;
  for (int i = 1; i < static_cast<int>(values.size()); ++i) {
    const double better = std::abs(values[static_cast<size_t>(best)] - v), now = std::abs(values[static_cast<size_t>(i)] - v);
    if (now < better || (now == better && i % 2 == 0)) best = i;
  }
  return best;
}

std::vector<double> E4m3Magnitudes() {
  std::vector<double> values;
  for (int code = 0; code < 0x7F; ++code) {
    const int exponent = code >> 3, mantissa = code & 7;
    values.push_back(exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10));
  }
  return values;
}

TEST_CASE("E4M3: every code by the formula of the specification, both signs") {
  const std::vector<double> values = E4m3Magnitudes();
  for (int code = 0; code < 0x7F; ++code) {
    CHECK(E4m3ToFloat(static_cast<uint8_t>(code)) == values[static_cast<size_t>(code)]);
    CHECK(E4m3ToFloat(static_cast<uint8_t>(code | 0x80)) == -values[static_cast<size_t>(code)]);
    CHECK(E4m3FromFloat(E4m3ToFloat(static_cast<uint8_t>(code))) == code);
    CHECK(E4m3FromFloat(E4m3ToFloat(static_cast<uint8_t>(code | 0x80))) == (code | 0x80));
  }
  CHECK(values.back() == 448);
  CHECK(std::isnan(E4m3ToFloat(0x7F)));
  CHECK(std::isnan(E4m3ToFloat(0xFF)));
}

TEST_CASE("E4M3: rounding is to nearest, ties to the even code, at and beside every boundary") {
  const std::vector<double> values = E4m3Magnitudes();
  int wrong = 0;
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const auto middle = static_cast<float>((values[i] + values[i + 1]) / 2);  // exact
    for (const float v : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      if (E4m3FromFloat(v) != NearestCode(values, static_cast<double>(v))) ++wrong;
      if (E4m3FromFloat(-v) != (NearestCode(values, static_cast<double>(v)) | 0x80)) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("E4M3: saturation, zeros, subnormals of FP32, NaN") {
  CHECK(E4m3FromFloat(448) == 0x7E);
  CHECK(E4m3FromFloat(std::nextafter(448.0f, 1e9f)) == 0x7E);
  CHECK(E4m3FromFloat(464) == 0x7E);  // half-way to the 480 that the format lacks
  CHECK(E4m3FromFloat(1e30f) == 0x7E);
  CHECK(E4m3FromFloat(INFINITY) == 0x7E);
  CHECK(E4m3FromFloat(-INFINITY) == 0xFE);
  CHECK(E4m3FromFloat(0.0f) == 0);
  CHECK(E4m3FromFloat(-0.0f) == 0x80);
  CHECK(E4m3FromFloat(0x1p-140f) == 0);
  CHECK(E4m3FromFloat(NAN) == 0x7F);
  CHECK(E4m3FromFloat(-NAN) == 0x7F);
}

TEST_CASE("E8M0: decoding, its inverse, and the smallest power of two that holds a block") {
  for (int code = 0; code < 255; ++code) {
    CHECK(static_cast<double>(E8m0ToFloat(static_cast<uint8_t>(code))) == std::ldexp(1.0, code - 127));
    CHECK(static_cast<double>(E8m0Inverse(static_cast<uint8_t>(code))) == std::ldexp(1.0, 127 - code));
  }
  CHECK(std::isnan(E8m0ToFloat(255)));
  for (int e = -127; e <= 119; ++e) {
    const auto at = static_cast<float>(std::ldexp(448.0, e));
    CHECK(E8m0ForAmax(at) == e + 127);
    CHECK(E8m0ForAmax(std::nextafter(at, INFINITY)) == e + 128);
  }
  CHECK(E8m0ForAmax(0) == 0);
  CHECK(E8m0ForAmax(0x1p-149f) == 0);
  CHECK(E8m0ForAmax(3.4028235e38f) == 247);
  CHECK(E8m0ForAmax(INFINITY) == 255);
  CHECK(E8m0ForAmax(NAN) == 255);
}

TEST_CASE("E2M1: every code, and rounding at and beside every boundary") {
  std::vector<double> values;
  for (int code = 0; code < 8; ++code) {
    values.push_back(static_cast<double>(E2m1ToFloat(static_cast<uint8_t>(code))));
    CHECK(static_cast<double>(E2m1ToFloat(static_cast<uint8_t>(code | 8))) == -values.back());
  }
  CHECK(values == std::vector<double>{0, 0.5, 1, 1.5, 2, 3, 4, 6});
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const auto middle = static_cast<float>((values[i] + values[i + 1]) / 2);
    for (const float v : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 10.0f)}) {
      CHECK(E2m1FromFloat(v) == NearestCode(values, static_cast<double>(v)));
      CHECK(E2m1FromFloat(-v) == (NearestCode(values, static_cast<double>(v)) | 8));
    }
  }
  CHECK(E2m1FromFloat(1e9f) == 7);
  CHECK(E2m1FromFloat(-INFINITY) == 15);
}

}  // namespace
}  // namespace yardmaster
