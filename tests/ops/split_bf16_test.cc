#include "src/ops/split_bf16.h"

#include <cmath>

#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

TEST_CASE("split: three terms are the number, two are it to 16 bits, one is BF16's rounding") {
  CpuFixture cpu;
  const std::vector<double> values = RandomValues("x", 6 * 5, -3, 3);
  const Tensor x = cpu.Make(DType::kF32, {6, 5}, values);
  const Tensor wide = cpu.Make(DType::kBF16, {6, 15}), last = cpu.Make(DType::kBF16, {6, 5});
  SplitBf16(cpu.stream(), x,
            {{wide.Cols(0, 5), 0}, {wide.Cols(5, 10), 1}, {wide.Cols(10, 15), 0}, {last, 2}});
  for (int64_t r = 0; r < 6; ++r) {
    for (int64_t c = 0; c < 5; ++c) {
      const float number = x.as<float>()[r * 5 + c];
      const auto at = [&](int64_t column) {
        return static_cast<double>(static_cast<float>(wide.as<BFloat16>()[r * 15 + column]));
      };
      const double third = static_cast<double>(static_cast<float>(last.as<BFloat16>()[r * 5 + c]));
      CHECK(at(c) == static_cast<double>(static_cast<float>(BFloat16(number))));
      CHECK(at(c) == at(10 + c));
      CHECK(std::abs(at(c) + at(5 + c) - static_cast<double>(number)) <= std::abs(number) * 0x1p-16);
      CHECK(at(c) + at(5 + c) + third == static_cast<double>(number));
    }
  }
}

TEST_CASE("split: terms add up in their order, beside what is there or not") {
  CpuFixture cpu;
  const Tensor both = cpu.Make(DType::kF32, {2, 4}, {1, 2, 10, 20, 3, 4, 30, 40});
  const Tensor y = cpu.Make(DType::kF32, {2, 2}, {NAN, NAN, NAN, NAN});
  AddTerms(cpu.stream(), {both.Cols(0, 2), both.Cols(2, 4)}, 0, y);
  CHECK(ValuesOf(y) == std::vector<double>{11, 22, 33, 44});
  AddTerms(cpu.stream(), {both.Cols(0, 2)}, 2, y);
  CHECK(ValuesOf(y) == std::vector<double>{23, 46, 69, 92});
}

}  // namespace
}  // namespace yardmaster::testing
