// Products of 8-bit operands on the GPU: against the cpu device, and what must not change their bits.
#include "src/ops/scaled_gemm.h"

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "src/base/error.h"
#include "src/ops/quantize.h"
#include "src/ops/recipe_gemm.h"
#include "src/ops/step_control.h"
#include "tests/cuda/gpu.h"

namespace yardmaster::testing {
namespace {

constexpr QuantFormat kMx{QuantKind::kMxfp8};
constexpr QuantFormat kPow2{QuantKind::kFp8Block, true};
constexpr QuantFormat kExact{QuantKind::kFp8Block, false};

// All three products of a layer with a recipe, from the same BF16 values, against the cpu device in F32. The
// tensor cores of sm_90 keep about 14 bits of a sum of 128 products.
void CheckRecipe(const QuantFormat& format, bool grouped, GroupedGemmMode mode = GroupedGemmMode::kAuto) {
  Gpu gpu(size_t{1} << 29, size_t{1} << 28);
  CpuFixture cpu;
  const int64_t R = 300, N = 192, K = 320, L = grouped ? 3 : 1, used = grouped ? 290 : R;
  const GemmRecipe recipe{format};
  const std::vector<double> xs = RandomValues("x", used * K), dys = RandomValues("dy", used * N), ws = RandomValues("w", L * N * K);
  const std::vector<double> offsets = {0, 130, 130, 290};
  const auto rounded = [&](const Shape& shape, const std::vector<double>& v) {
    HostTensor t(DType::kBF16, shape);
    SetValues(t.view(), v);
    return ValuesOf(t.view());
  };
  const Shape w_shape = grouped ? Shape{L, N, K} : Shape{N, K};
  const auto run = [&](const Stream& stream, Arena& work, DType type, auto&& make, auto&& values) {
    const Tensor x = make(type, Shape{R, K}, rounded({R, K}, xs)), dy = make(type, Shape{R, N}, rounded({R, N}, dys));
    const Tensor w = make(type, w_shape, rounded(w_shape, ws));
    const Tensor off = grouped ? make(DType::kI64, Shape{L + 1}, offsets) : Tensor();
    const Tensor y = make(type, Shape{R, N}, std::vector<double>(static_cast<size_t>(R * N), 0));
    const Tensor dx = make(type, Shape{R, K}, std::vector<double>(static_cast<size_t>(R * K), 0));
    const Tensor dw = make(DType::kF32, w_shape, std::vector<double>(static_cast<size_t>(L * N * K), 1));
    RecipeForward(stream, recipe, {.x = x, .w = w, .offsets = off, .y = y, .grouped_gemm = mode}, work);
    RecipeBackwardInput(stream, recipe, {.dy = dy, .w = w, .offsets = off, .dx = dx, .grouped_gemm = mode}, work);
    RecipeBackwardWeight(stream, recipe, {.dy = dy, .x = x, .offsets = off, .dw = dw, .beta = 1, .grouped_gemm = mode}, work);
    return std::array{values(y), values(dx), values(dw)};
  };
  const auto here = run(cpu.stream(), cpu.work(), DType::kF32,
                        [&](DType t, const Shape& s, const std::vector<double>& v) { return cpu.Make(t, s, v); },
                        [](const Tensor& t) { return ValuesOf(t); });
  const auto there = run(gpu.stream(), gpu.work(), DType::kBF16,
                         [&](DType t, const Shape& s, const std::vector<double>& v) { return gpu.Make(t, s, v); },
                         [&](const Tensor& t) { return gpu.Values(t); });
  CHECK(RelativeL2(there[0], here[0]) < 3e-3);  // one rounding to BF16
  CHECK(RelativeL2(there[1], here[1]) < 3e-3);
  CHECK(RelativeL2(there[2], here[2]) < (format == kMx ? 1e-5 : 1e-3));
}

TEST_CASE("recipe gemm on the GPU: every format, dense and grouped, as on the cpu device") {
  YM_NEEDS_GPU();
  for (const QuantFormat& format : {kMx, kPow2, kExact}) {
    CheckRecipe(format, false);
    CheckRecipe(format, true);
  }
  for (const bool grouped : {false, true}) CheckRecipe(kPow2, grouped, GroupedGemmMode::kPortable);
}

TEST_CASE("scaled gemm on the GPU: multiprocessors left to others do not change a bit of a weight gradient") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 29, size_t{1} << 28);
  const int64_t R = 2100, N = 528, K = 784, L = 5;
  const Tensor dy = gpu.Make(DType::kBF16, {R, N}, RandomValues("dy", R * N)), x = gpu.Make(DType::kBF16, {R, K}, RandomValues("x", R * K));
  const Tensor offsets = gpu.Make(DType::kI64, {L + 1}, {0, 900, 900, 901, 1413, 2050});
  for (const QuantFormat& format : {kPow2, kExact, kMx}) {
    for (const bool grouped : {true, false}) {
      std::string first;
      for (const int free_sms : {0, 1, 16, 40, 131, 200}) {
        INFO(QuantName(format) << " grouped " << grouped << ", " << free_sms << " left");
        const Shape shape = grouped ? Shape{L, N, K} : Shape{N, K};
        const Tensor dw = gpu.Make(DType::kF32, shape, RandomValues("dw", shape.elements()));
        RecipeBackwardWeight(gpu.stream(), {format},
                             {.dy = dy, .x = x, .offsets = grouped ? offsets : Tensor(), .dw = dw, .beta = 1, .free_sms = free_sms}, gpu.work());
        const std::string bits = gpu.Bytes(dw);
        if (first.empty()) first = bits;
        CHECK(bits == first);
      }
    }
  }
}

// Which form of a kernel runs depends on the rows of the window and on beta. A step that is computed again in rounds has
// smaller windows, adds to zeros what another one wrote, and has the same bits.
TEST_CASE("scaled gemm on the GPU: rows of a window beyond its groups do not change a bit of a weight gradient") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 29, size_t{1} << 28);
  const int64_t N = 528, K = 784, L = 5, weights = L * N * K;
  const Tensor offsets = gpu.Make(DType::kI64, {L + 1}, {0, 900, 900, 901, 1413, 2050});
  const std::vector<double> noise = RandomValues("dw", weights), zeros(static_cast<size_t>(weights), 0.0);
  const auto operand = [&](const char* name, int64_t R, int64_t columns) {
    std::vector<double> values = RandomValues(name, 2050 * columns);
    values.resize(static_cast<size_t>(R * columns), std::nan(""));
    return gpu.Make(DType::kBF16, {R, columns}, values);
  };
  std::map<std::string, std::string> first;  // by format and what is added to
  for (const int64_t R : {2050, 2100, 12000}) {
    const Tensor dy = operand("dy", R, N), x = operand("x", R, K);
    for (const QuantFormat& format : {kPow2, kExact, kMx}) {
      for (const auto& [what, start, beta] :
           {std::tuple{"written", &noise, 0.0}, {"written", &zeros, 1.0}, {"added", &noise, 1.0}}) {
        INFO(QuantName(format) << " beta " << beta << ", " << what << ", a window of " << R << " rows");
        const Tensor dw = gpu.Make(DType::kF32, {L, N, K}, *start);
        RecipeBackwardWeight(gpu.stream(), {format}, {.dy = dy, .x = x, .offsets = offsets, .dw = dw, .beta = beta},
                             gpu.work());
        const std::string bits = gpu.Bytes(dw);
        CHECK((first.emplace(StrCat(QuantName(format), format.power_of_two, what), bits).first->second == bits));
      }
    }
  }
}

TEST_CASE("scaled gemm on the GPU: fp8_block with an addend, strided") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 29, size_t{1} << 28);
  CpuFixture cpu;
  const int64_t R = 70, N = 48, K = 272;
  const auto run = [&](const Stream& stream, Arena& work, DType type, auto&& make) {
    const Tensor x = make(type, Shape{R, K}, RandomValues("x", R * K)), w = make(type, Shape{1, N, K}, RandomValues("w", N * K));
    const Tensor c = make(type, Shape{R, N + 16}, RandomValues("c", R * (N + 16)));
    const Tensor wide = make(type, Shape{R, N + 32}, std::vector<double>(static_cast<size_t>(R * (N + 32)), -7));
    const auto quantized = [&](const Shape& codes, const Shape& scales) {
      return Quantized{make(DType::kU8, codes, std::vector<double>(static_cast<size_t>(codes.elements()), 0)),
                       make(DType::kF32, scales, std::vector<double>(static_cast<size_t>(scales.elements()), 0))};
    };
    const Quantized qx = quantized({R, K}, ScaleShape(kPow2, R, K)), qw = quantized({1, N, K}, WeightScaleShape(kPow2, 1, N, K));
    QuantizeRows(stream, {.format = kPow2, .x = x, .rows = qx});
    QuantizeWeights(stream, {.format = kPow2, .w = w, .rows = qw});
    ScaledGemm(stream, {.format = kPow2, .x = qx, .w = qw, .y = wide.Cols(8, 8 + N), .c = c.Cols(2, 2 + N), .beta = 1}, work);
    return wide;
  };
  // From the same BF16 values.
  const auto here = ValuesOf(run(cpu.stream(), cpu.work(), DType::kF32, [&](DType t, const Shape& shape, const std::vector<double>& v) {
    HostTensor rounded(t == DType::kF32 && v.size() > 0 ? DType::kBF16 : t, shape);
    SetValues(rounded.view(), v);
    return cpu.Make(t, shape, ValuesOf(rounded.view()));
  }));
  const auto there = gpu.Values(run(gpu.stream(), gpu.work(), DType::kBF16, [&](DType t, const Shape& shape, const std::vector<double>& v) {
    return gpu.Make(t, shape, v);
  }));
  CHECK(RelativeL2(there, here) < 3e-3);
  for (int64_t i = 0; i < R; ++i) {
    for (const int64_t j : {int64_t{0}, int64_t{7}, 8 + N, N + 31}) CHECK(there[static_cast<size_t>(i * (N + 32) + j)] == -7);
  }
}

// With one recipe, grouped or dense; none: plain BF16 products.
void CheckSquares(const GemmRecipe& recipe, bool grouped, int64_t N, int64_t K, GroupedGemmMode mode, bool expected) {
  Gpu gpu(size_t{1} << 29, size_t{1} << 28);
  const int64_t R = 700, L = grouped ? 4 : 1;
  const Tensor x = gpu.Make(DType::kBF16, {R, K}, RandomValues("x", R * K));
  const Tensor dy = gpu.Make(DType::kBF16, {R, N}, RandomValues("dy", R * N));
  const Tensor off = grouped ? gpu.Make(DType::kI64, {L + 1}, {0, 130, 130, 131, 640}) : Tensor();
  const Shape shape = grouped ? Shape{L, N, K} : Shape{N, K};
  const Tensor plain = gpu.Make(DType::kF32, shape), dw = gpu.Make(DType::kF32, shape);
  const int64_t n = RecipeNormAddends(gpu.stream(), recipe, DType::kBF16, dw, mode), chunks = NumNormChunks(shape);
  CHECK((n > 0) == expected);
  if (n == 0) return;
  RecipeBackwardWeightArgs args{.dy = dy, .x = x, .offsets = off, .dw = plain, .grouped_gemm = mode};
  RecipeBackwardWeight(gpu.stream(), recipe, args, gpu.work());
  args.dw = dw;
  args.squares = gpu.Make(DType::kF64, {chunks * n});
  gpu.Poison(dw);
  gpu.Poison(args.squares);
  RecipeBackwardWeight(gpu.stream(), recipe, args, gpu.work());
  CHECK(gpu.Bytes(dw) == gpu.Bytes(plain));
  const Tensor of_memory = gpu.Make(DType::kF64, {chunks * n});
  gpu.Poison(of_memory);
  SumTileSquares(gpu.stream(), dw, n, of_memory);
  CHECK(gpu.Bytes(of_memory) == gpu.Bytes(args.squares));
  const Tensor partials = gpu.Make(DType::kF64, {chunks}), read = gpu.Make(DType::kF64, {chunks});
  SumNormAddends(gpu.stream(), {{args.squares, n, partials}});
  SumSquares(gpu.stream(), dw, read);
  const std::vector<double> summed = gpu.Values(partials), squared = gpu.Values(read);
  for (size_t i = 0; i < summed.size(); ++i) CHECK(std::abs(summed[i] - squared[i]) <= 1e-7 * squared[i]);
}

TEST_CASE("weight gradients on the GPU: the squares that they sum are those of what they wrote") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 20, size_t{1} << 20);
  const Tensor any(nullptr, DType::kF32, {1, 128, 256});
  bool hopper = true;
  try {
    GroupedGemmNormAddends(gpu.stream(), DType::kBF16, any, GroupedGemmMode::kHopper);
  } catch (const Error&) {
    hopper = false;
  }
  for (const GemmRecipe& recipe : {GemmRecipe{}, GemmRecipe{kMx}, GemmRecipe{kPow2}, GemmRecipe{kExact}}) {
    const bool block = recipe.format && recipe.format->kind == QuantKind::kFp8Block;
    if (block && !hopper) continue;
    INFO((recipe.format ? "8 bits" : "bf16") << (block ? ", fp8_block" : ""));
    CheckSquares(recipe, true, 384, 512, GroupedGemmMode::kAuto, hopper);
    CheckSquares(recipe, true, 128, 768, GroupedGemmMode::kAuto, hopper);
    CheckSquares(recipe, true, 384, 384, GroupedGemmMode::kAuto, block);
    CheckSquares(recipe, true, 192, 512, GroupedGemmMode::kAuto, false);
    CheckSquares(recipe, false, 384, 512, GroupedGemmMode::kAuto, block);
    CheckSquares(recipe, true, 384, 512, GroupedGemmMode::kPortable, false);
  }
}

}  // namespace
}  // namespace yardmaster::testing
