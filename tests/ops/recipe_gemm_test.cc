#include "src/ops/recipe_gemm.h"

#include <cmath>

#include "src/ops/gemm.h"
#include "src/ops/grouped_gemm.h"
#include "src/ops/step_control.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

const GemmRecipe kNone{};
const GemmRecipe kMx{QuantFormat{QuantKind::kMxfp8}};
const GemmRecipe kBlock{QuantFormat{QuantKind::kFp8Block, true}};
const GemmRecipe kBlockExact{QuantFormat{QuantKind::kFp8Block, false}};

struct Products {
  std::vector<double> y, dx, dw;
};

// With one recipe, all three products of a layer; grouped with counts {21, 0, 40}, five rows of nobody.
Products Compute(const GemmRecipe& recipe, bool grouped, const std::vector<double>& x_values, const std::vector<double>& w_values,
                 int64_t N, int64_t K) {
  CpuFixture cpu;
  const int64_t R = 66, L = 3, used = grouped ? 61 : 66;
  std::vector<double> dy_values = RandomValues("dy", R * N), xs = x_values;
  for (auto r = static_cast<size_t>(used); r < static_cast<size_t>(R); ++r) {
    for (size_t n = 0; n < static_cast<size_t>(N); ++n) dy_values[r * static_cast<size_t>(N) + n] = NAN;
    for (size_t k = 0; k < static_cast<size_t>(K); ++k) xs[r * static_cast<size_t>(K) + k] = NAN;
  }
  const Tensor x = cpu.Make(DType::kF32, {R, K}, xs), dy = cpu.Make(DType::kF32, {R, N}, dy_values);
  const Tensor w = grouped ? cpu.Make(DType::kF32, {L, N, K}, w_values)
                           : cpu.Make(DType::kF32, {N, K}, {w_values.begin(), w_values.begin() + N * K});
  const Tensor off = grouped ? cpu.Make(DType::kI64, {4}, {0, 21, 21, 61}) : Tensor();
  const Tensor y = cpu.Make(DType::kF32, {R, N}), dx = cpu.Make(DType::kF32, {R, K});
  const Tensor dw = cpu.Make(DType::kF32, w.shape(), std::vector<double>(static_cast<size_t>(w.elements()), 1));
  RecipeForward(cpu.stream(), recipe, {.x = x, .w = w, .offsets = off, .y = y}, cpu.work());
  RecipeBackwardInput(cpu.stream(), recipe, {.dy = dy, .w = w, .offsets = off, .dx = dx}, cpu.work());
  RecipeBackwardWeight(cpu.stream(), recipe, {.dy = dy, .x = x, .offsets = off, .dw = dw, .beta = 2}, cpu.work());
  CHECK(cpu.work().top() == 0);
  return {ValuesOf(y.Slice(0, used)), ValuesOf(dx.Slice(0, used)), ValuesOf(dw)};
}

TEST_CASE("recipe gemm: without a format, the bits of the plain products") {
  CpuFixture cpu;
  const Tensor x = cpu.Make(DType::kF32, {9, 20}, RandomValues("x", 180)), w = cpu.Make(DType::kF32, {7, 20}, RandomValues("w", 140));
  const Tensor c = cpu.Make(DType::kF32, {9, 7}, RandomValues("c", 63)), y = cpu.Make(DType::kF32, {9, 7}), z = cpu.Make(DType::kF32, {9, 7});
  Gemm(cpu.stream(), {.a = x, .b = w, .d = y, .c = c, .trans_b = true, .beta = 1});
  RecipeForward(cpu.stream(), kNone, {.x = x, .w = w, .y = z, .addend = c}, cpu.work());
  CHECK(BytesOf(y) == BytesOf(z));
}

TEST_CASE("recipe gemm: the error is that of 8-bit operands, not more and not less") {
  const int64_t N = 96, K = 160;
  const std::vector<double> x = RandomValues("x", 66 * K), w = RandomValues("w", 3 * N * K);
  for (const bool grouped : {false, true}) {
    const Products high = Compute(kNone, grouped, x, w, N, K);
    for (const GemmRecipe& recipe : {kMx, kBlock, kBlockExact}) {
      const Products low = Compute(recipe, grouped, x, w, N, K);
      for (const auto& [a, b] : {std::pair{&low.y, &high.y}, {&low.dx, &high.dx}, {&low.dw, &high.dw}}) {
        // Independent roundings of both operands, 2^-4 of a value at most: about 2.6 % each.
        const double error = RelativeL2(*a, *b);
        CHECK(error < 0.06);
        CHECK(error > 0.005);
      }
    }
  }
}

TEST_CASE("recipe gemm: operands that the format holds give the plain products") {
  const int64_t N = 40, K = 136;
  std::vector<double> x = RandomValues("x", 66 * K, -8, 8), w = RandomValues("w", 3 * N * K, -8, 8);
  for (double& v : x) v = std::trunc(v);  // small integers: exact under every scale that their runs can get
  for (double& v : w) v = std::trunc(v);
  for (const bool grouped : {false, true}) {
    const Products high = Compute(kNone, grouped, x, w, N, K);
    for (const GemmRecipe& recipe : {kMx, kBlock}) CHECK(Compute(recipe, grouped, x, w, N, K).y == high.y);
  }
}

TEST_CASE("recipe gemm: copies made before, in one read, are the bits of those made on the way") {
  const int64_t R = 66, N = 96, K = 160, L = 3;
  for (const bool grouped : {false, true}) {
    for (const GemmRecipe& recipe : {kMx, kBlock, kBlockExact}) {
      CpuFixture cpu;
      const int64_t used = grouped ? 61 : R;
      const Tensor x = cpu.Make(DType::kF32, {R, K}, RandomValues("x", R * K)), dy = cpu.Make(DType::kF32, {R, N}, RandomValues("dy", R * N));
      const Tensor w = grouped ? cpu.Make(DType::kF32, {L, N, K}, RandomValues("w", L * N * K)) : cpu.Make(DType::kF32, {N, K}, RandomValues("w", N * K));
      const Tensor off = grouped ? cpu.Make(DType::kI64, {4}, {0, 21, 21, 61}) : Tensor();
      const auto products = [&](const RecipeOperand& a, const RecipeOperand& b, const RecipeWeight& weight) {
        const Tensor y = cpu.Make(DType::kF32, {R, N}), dx = cpu.Make(DType::kF32, {R, K}), dw = cpu.Make(DType::kF32, w.shape());
        RecipeForward(cpu.stream(), recipe, {.x = a, .w = weight, .offsets = off, .y = y}, cpu.work());
        RecipeBackwardInput(cpu.stream(), recipe, {.dy = b, .w = weight, .offsets = off, .dx = dx}, cpu.work());
        RecipeBackwardWeight(cpu.stream(), recipe, {.dy = b, .x = a, .offsets = off, .dw = dw}, cpu.work());
        return BytesOf(y.Slice(0, used)) + BytesOf(dx.Slice(0, used)) + BytesOf(dw);
      };
      const std::string anew = products(x, dy, w);
      const size_t mark = cpu.work().Mark();
      RecipeOperand a = WithCopies(cpu.stream(), recipe, x, off, &cpu.work(), &cpu.work());
      RecipeOperand b = WithCopies(cpu.stream(), recipe, dy, off, &cpu.work(), &cpu.work());
      a.values = b.values = Tensor();  // nothing may be read but the copies
      const auto copy = [&](int64_t rows, int64_t columns) {
        const Shape shape{grouped ? L : 1, rows, columns};
        return Quantized{cpu.work().Allocate("codes", DType::kU8, shape),
                         cpu.work().Allocate("scales", recipe.format->scale_type(), WeightScaleShape(*recipe.format, shape[0], rows, columns))};
      };
      const WeightCopies copies{*recipe.format, copy(N, K), copy(K, N)};
      QuantizeWeights(cpu.stream(), copies, w);
      CHECK(products(a, b, {Tensor(), copies}) == anew);
      cpu.work().Release(mark);
    }
  }
}

TEST_CASE("recipe gemm: addend and accumulation are not quantised") {
  CpuFixture cpu;
  for (const GemmRecipe& recipe : {kMx, kBlock}) {
    const Tensor x = cpu.Make(DType::kF32, {4, 64}), w = cpu.Make(DType::kF32, {3, 64}, RandomValues("w", 192));
    const std::vector<double> values = RandomValues("c", 12), old = RandomValues("dx", 256);
    const Tensor c = cpu.Make(DType::kF32, {4, 3}, values), y = cpu.Make(DType::kF32, {4, 3});
    RecipeForward(cpu.stream(), recipe, {.x = x, .w = w, .y = y, .addend = c}, cpu.work());
    CHECK(ValuesOf(y) == ValuesOf(c));
    const Tensor dy = cpu.Make(DType::kF32, {4, 3}), dx = cpu.Make(DType::kF32, {4, 64}, old);
    const std::vector<double> before = ValuesOf(dx);
    RecipeBackwardInput(cpu.stream(), recipe, {.dy = dy, .w = w, .dx = dx, .accumulate = true}, cpu.work());
    CHECK(ValuesOf(dx) == before);
  }
}

TEST_CASE("recipe gemm: the dry device plans the workspace that a run takes") {
  for (const GemmRecipe& recipe : {kMx, kBlock}) {
    size_t planned[2];
    for (const bool dry : {true, false}) {
      const std::unique_ptr<Device> device = dry ? MakeDryDevice() : MakeCpuDevice({.threads = 1});
      Arena tensors("tensors", device.get()), work("work", device.get());
      if (!dry) tensors.Commit(1 << 20), work.Commit(1 << 20);
      const Stream stream(device.get());
      const Tensor x = tensors.Allocate("x", DType::kF32, {10, 64}), w = tensors.Allocate("w", DType::kF32, {3, 32, 64});
      const Tensor y = tensors.Allocate("y", DType::kF32, {10, 32}), off = tensors.Allocate("offsets", DType::kI64, {4});
      if (!dry) SetValues(off, {0, 4, 4, 10});
      RecipeForward(stream, recipe, {.x = x, .w = w, .offsets = off, .y = y}, work);
      RecipeBackwardInput(stream, recipe, {.dy = y, .w = w, .offsets = off, .dx = x}, work);
      RecipeBackwardWeight(stream, recipe, {.dy = y, .x = x, .offsets = off, .dw = w}, work);
      planned[dry] = work.high_water();
    }
    CHECK(planned[0] == planned[1]);
    CHECK(planned[0] > 0);
  }
}

TEST_CASE("recipe gemm: the squares that a weight gradient sums on its way are those of what it wrote") {
  const int64_t R = 66, L = 3, N = 200, K = 160;
  CpuFixture cpu;
  const Tensor x = cpu.Make(DType::kF32, {R, K}, RandomValues("x", R * K));
  const Tensor dy = cpu.Make(DType::kF32, {R, N}, RandomValues("dy", R * N));
  const Tensor off = cpu.Make(DType::kI64, {4}, {0, 21, 21, 61});
  for (const GemmRecipe& recipe : {kNone, kMx, kBlock, kBlockExact}) {
    for (const bool grouped : {false, true}) {
      const Shape shape = grouped ? Shape{L, N, K} : Shape{N, K};
      const Tensor plain = cpu.Make(DType::kF32, shape), dw = cpu.Make(DType::kF32, shape);
      RecipeBackwardWeightArgs args{.dy = dy, .x = x, .offsets = grouped ? off : Tensor(), .dw = plain};
      RecipeBackwardWeight(cpu.stream(), recipe, args, cpu.work());
      const int64_t n = RecipeNormAddends(cpu.stream(), recipe, DType::kF32, dw, GroupedGemmMode::kAuto);
      CHECK((n > 0) == (grouped || recipe == kBlock || recipe == kBlockExact));
      const int64_t chunks = NumNormChunks(shape);
      args.dw = dw;
      args.squares = cpu.Make(DType::kF64, {chunks * std::max<int64_t>(n, 1)},
                              std::vector<double>(static_cast<size_t>(chunks * std::max<int64_t>(n, 1)), NAN));
      if (n == 0) {
        CHECK_THROWS_AS(RecipeBackwardWeight(cpu.stream(), recipe, args, cpu.work()), InternalError);
        continue;
      }
      RecipeBackwardWeight(cpu.stream(), recipe, args, cpu.work());
      CHECK(BytesOf(dw) == BytesOf(plain));
      const Tensor partials = cpu.Make(DType::kF64, {chunks}), read = cpu.Make(DType::kF64, {chunks});
      SumNormAddends(cpu.stream(), {{args.squares, n, partials}});
      SumSquares(cpu.stream(), dw, read);
      CHECK(BytesOf(partials) == BytesOf(read));
      args.beta = 1;  // those of the product are not those of the sum
      CHECK_THROWS_AS(RecipeBackwardWeight(cpu.stream(), recipe, args, cpu.work()), InternalError);
      args.beta = 0;
      args.squares = cpu.Make(DType::kF64, {chunks * n + 1});
      CHECK_THROWS_AS(RecipeBackwardWeight(cpu.stream(), recipe, args, cpu.work()), InternalError);
    }
  }
}

// The memory of a run is planned in any build, with CUDA or without.
TEST_CASE("recipe gemm: the dry device plans room for the squares that a GPU's kernels sum") {
  const auto dry = MakeDryDevice(DeviceKind::kCuda);
  const Stream stream(dry.get());
  const auto addends = [&](const GemmRecipe& recipe, const Shape& shape, GroupedGemmMode mode = GroupedGemmMode::kAuto) {
    return RecipeNormAddends(stream, recipe, DType::kBF16, Tensor(nullptr, DType::kF32, shape), mode);
  };
  CHECK(addends(kNone, {4, 384, 512}) == 16);
  CHECK(addends(kMx, {4, 384, 512}) == 16);
  CHECK(addends(kBlock, {4, 384, 512}) == 32);
  CHECK(addends(kBlock, {384, 640}) == 40);
  CHECK(addends(kNone, {384, 512}) == 0);
  CHECK(addends(kMx, {384, 512}) == 0);
  CHECK(addends(kNone, {4, 384, 384}) == 0);
  CHECK(addends(kNone, {513, 128, 256}) == 0);
  CHECK(addends(kBlock, {4, 192, 512}) == 0);
  CHECK(addends(kNone, {4, 384, 512}, GroupedGemmMode::kPortable) == 0);
  CHECK(RecipeNormAddends(stream, kNone, DType::kF32, Tensor(nullptr, DType::kF32, {4, 384, 512}), GroupedGemmMode::kAuto) == 0);
}

}  // namespace
}  // namespace yardmaster::testing
