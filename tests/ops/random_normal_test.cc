#include "src/ops/random_normal.h"

#include <cmath>

#include "src/base/philox.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

TEST_CASE("random normal: a box holds the numbers of its global indices, and a rounded copy") {
  CpuFixture cpu(3);
  const ShardSpec spec{{5, 7, 11}, {{1, 2, 3}, {3, 4, 6}}};
  const Tensor y = cpu.Make(DType::kF32, {3, 4, 6}), copy = cpu.Make(DType::kBF16, {3, 4, 6});
  RandomNormal(cpu.stream(),
               {.seed = 9, .number_stream = 8, .scale = 0.5, .spec = spec, .y = y, .copy = copy});
  int64_t at = 0;
  for (int64_t i = 1; i < 4; ++i) {
    for (int64_t j = 2; j < 6; ++j) {
      for (int64_t k = 3; k < 9; ++k, ++at) {
        const auto index = static_cast<uint64_t>((i * 7 + j) * 11 + k);
        const auto value = static_cast<float>(0.5 * PhiloxNormal(9, 8, index));
        CHECK(y.as<float>()[at] == value);
        CHECK(copy.as<BFloat16>()[at].bits == BFloat16(value).bits);
      }
    }
  }
}

TEST_CASE("random normal: vectors and matrices in parts, whatever the threads") {
  for (const Shape& shape : {Shape{9001}, Shape{90, 101}}) {
    std::vector<double> first;
    for (const int threads : {1, 3}) {
      CpuFixture cpu(threads);
      const Tensor y = cpu.Make(DType::kF64, shape);
      RandomNormal(cpu.stream(),
                   {.seed = 1, .number_stream = 2, .spec = ShardSpec::Replicated(shape), .y = y});
      const std::vector<double> values = ValuesOf(y);
      for (size_t i = 0; i < values.size(); i += 97) CHECK(values[i] == PhiloxNormal(1, 2, i));
      if (first.empty()) first = values;
      CHECK(values == first);
    }
  }
}

TEST_CASE("random normal: logarithm and cosine are those of the library, almost to the last bit") {
  for (uint64_t i = 0; i < 20000; ++i) {
    const double u = PhiloxUniform(1, 1, i) + 0x1p-54;
    for (const double x : {u, u * 0x1p-30, 1 - u * 1e-9}) {
      if (x > 0 && x < 1) CHECK(std::abs(PortableLog(x) / std::log(x) - 1) < 1e-15);
    }
    const double v = static_cast<double>(i % 16) / 16 + u * 1e-3;
    CHECK(std::abs(PortableCosTurns(v) - std::cos(6.283185307179586477 * v)) < 2e-15);
  }
}

}  // namespace
}  // namespace yardmaster::testing
