#include "src/ops/quantize_nvfp4.h"

#include <cmath>

#include "src/tensor/small_float.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

struct Result {
  Tensor amax, codes, scales, back;
};
Result Run(CpuFixture& cpu, const Tensor& x) {
  const int64_t R = x.dim(0), C = x.dim(1);
  Result r{cpu.Make(DType::kF32, {1}), cpu.Make(DType::kU8, {R, C / 2}), cpu.Make(DType::kU8, {R, (C + 15) / 16}),
           cpu.Make(DType::kF32, {R, C})};
  AbsMax(cpu.stream(), x, r.amax);
  const Nvfp4Args args{.x = x, .amax = r.amax, .codes = r.codes, .scales = r.scales};
  QuantizeNvfp4(cpu.stream(), args);
  DequantizeNvfp4(cpu.stream(), args, r.back);
  return r;
}

TEST_CASE("nvfp4: values that the format holds come back as they are") {
  CpuFixture cpu;
  // Largest 6 * 448 = 2688: the tensor's scale is 1. The second run's scale is 0.5.
  std::vector<double> values(32, 0);
  values[0] = -2688, values[1] = 448 * 1.5, values[2] = 448 * 0.5, values[16] = 3, values[17] = -0.25, values[18] = 2;
  const Result r = Run(cpu, cpu.Make(DType::kF32, {1, 32}, values));
  CHECK(r.amax.as<float>()[0] == 2688);
  CHECK(ValuesOf(r.back) == values);
  CHECK(r.scales.as<uint8_t>()[0] == 0x7E);
  CHECK(E4m3ToFloat(r.scales.as<uint8_t>()[1]) == 0.5f);
  CHECK(r.codes.as<uint8_t>()[0] == (0xF | 0x3 << 4));  // the even column in the low half
}

TEST_CASE("nvfp4: every value is within half a step of its run, by a search over all codes") {
  CpuFixture cpu;
  const int64_t R = 9, C = 50;  // the last run is short
  std::vector<double> values = RandomValues("nvfp4", R * C);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= std::exp2(static_cast<double>(i / 50));
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const Tensor x = cpu.Make(type, {R, C}, values);
    const Result r = Run(cpu, x);
    const std::vector<double> in = ValuesOf(x), out = ValuesOf(r.back);
    const double tensor = static_cast<double>(r.amax.as<float>()[0]) / (6 * 448);
    int wrong = 0;
    for (int64_t i = 0; i < R * C; ++i) {
      const double scale = static_cast<double>(E4m3ToFloat(r.scales.as<uint8_t>()[i / C * 4 + i % C / 16])) * tensor;
      double nearest = INFINITY;
      for (int code = 0; code < 16; ++code) {
        const double value = static_cast<double>(E2m1ToFloat(static_cast<uint8_t>(code))) * scale;
        nearest = std::min(nearest, std::abs(value - in[static_cast<size_t>(i)]));
      }
      const double error = std::abs(out[static_cast<size_t>(i)] - in[static_cast<size_t>(i)]);
      wrong += error > nearest * (1 + 1e-5) + 1e-6 * scale;
    }
    CHECK(wrong == 0);
    CHECK(RelativeL2(out, in) < 0.12);
  }
}

TEST_CASE("nvfp4: zeros, tiny and huge values") {
  CpuFixture cpu;
  const Result zero = Run(cpu, cpu.Make(DType::kF32, {2, 16}));
  CHECK(ValuesOf(zero.back) == std::vector<double>(32, 0));
  CHECK(ValuesOf(zero.scales) == std::vector<double>{0, 0});
  // A run that is too small for a scale of its own beside the tensor's largest is lost; that is the format.
  std::vector<double> values(32, 1e-7);
  values[0] = 1e3;
  const Result lost = Run(cpu, cpu.Make(DType::kF32, {1, 32}, values));
  CHECK(lost.scales.as<uint8_t>()[1] == 0);
  CHECK(lost.back.as<float>()[20] == 0);
  CHECK(lost.back.as<float>()[0] == Approx(1e3f).epsilon(0.04));
  const Result huge = Run(cpu, cpu.Make(DType::kF32, {1, 16}, std::vector<double>(16, 3e38)));
  CHECK(huge.back.as<float>()[3] == Approx(3e38f).epsilon(0.04));
  const Result tiny = Run(cpu, cpu.Make(DType::kF32, {1, 16}, std::vector<double>(16, 0x1p-149)));
  CHECK(tiny.back.as<float>()[0] == 0);
}

TEST_CASE("nvfp4: infinity and NaN spoil what they touch, and say so") {
  CpuFixture cpu;
  for (const double bad : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    std::vector<double> values(32, 1);
    values[20] = bad;
    const Tensor x = cpu.Make(DType::kF32, {1, 32}, values);
    const Result r = Run(cpu, x);  // the tensor's scale is lost too
    CHECK(!std::isfinite(r.amax.as<float>()[0]));
    for (int i = 0; i < 32; ++i) CHECK(std::isnan(r.back.as<float>()[i]));
    // With a finite amax of the caller's, the run alone.
    r.amax.as<float>()[0] = 1;
    const Nvfp4Args args{.x = x, .amax = r.amax, .codes = r.codes, .scales = r.scales};
    QuantizeNvfp4(cpu.stream(), args);
    DequantizeNvfp4(cpu.stream(), args, r.back);
    CHECK(r.back.as<float>()[0] == Approx(1.0f).epsilon(1e-6));
    for (int i = 16; i < 32; ++i) CHECK(std::isnan(r.back.as<float>()[i]));
  }
}

}  // namespace
}  // namespace yardmaster::testing
