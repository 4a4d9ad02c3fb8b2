#include "src/nn/parameter.h"

#include <cmath>
#include <limits>

#include "tests/catch.h"

namespace yardmaster {
namespace {

struct Memory {
  explicit Memory(Device& device) : weights("weights", &device), grads("grads", &device) {}
  void Give(const ParameterList& list, ComputeTypes types) {
    AllocateParameters(list, types, weights, &grads);
    CHECK(list.parameters()[0]->value.data() == nullptr);  // measured only
    weights.Release(0);
    grads.Release(0);
    weights.Commit(weights.high_water());
    grads.Commit(grads.high_water());
    AllocateParameters(list, types, weights, &grads);
  }
  Arena weights, grads;
};

TEST_CASE("an expert tensor starts the same on any layout") {
  const auto device = MakeCpuDevice({.threads = 1});
  ParameterList whole, part;
  whole.AddExpert("e", {6, 3, 4}, 0, 6, 0.5);
  part.AddExpert("e", {6, 3, 4}, 2, 3, 0.5);
  Memory whole_memory(*device), part_memory(*device);
  whole_memory.Give(whole, {DType::kF32, DType::kF32});
  part_memory.Give(part, {DType::kF32, DType::kF32});
  InitialiseParameters(whole, 42, *device);
  InitialiseParameters(part, 42, *device);
  const Tensor a = whole.parameters()[0]->master.Slice(2, 5), b = part.parameters()[0]->master;
  REQUIRE(b.shape() == Shape{3, 3, 4});
  for (int64_t i = 0; i < b.elements(); ++i) CHECK(a.as<float>()[i] == b.as<float>()[i]);
  InitialiseParameters(part, 43, *device);
  CHECK(a.as<float>()[0] != b.as<float>()[0]);
}

TEST_CASE("normal with the given deviation, ones for norms, another stream for each name") {
  const auto device = MakeCpuDevice({.threads = 1});
  ParameterList list;
  list.Add("a", {200, 50}, DecayClass::kMatrix, InitKind::kNormal, 0.02);
  list.Add("b", {200, 50}, DecayClass::kMatrix, InitKind::kNormal, 0.02);
  list.Add("n", {50}, DecayClass::kNorm, InitKind::kOnes, 0);
  list.AddBuffer("bias", {4}, DType::kF64);
  Memory memory(*device);
  memory.Give(list, {DType::kF64, DType::kF64});
  InitialiseParameters(list, 1, *device);
  const double* a = list.parameters()[0]->master.as<double>();
  const double* b = list.parameters()[1]->master.as<double>();
  double sum = 0, squares = 0, product = 0;
  for (int i = 0; i < 10000; ++i) sum += a[i], squares += a[i] * a[i], product += a[i] * b[i];
  CHECK(std::abs(sum / 10000) < 4 * 0.02 / 100);
  CHECK(std::sqrt(squares / 10000) == Approx(0.02).epsilon(0.03));
  CHECK(std::abs(product / 10000) < 4 * 0.02 * 0.02 / 100);
  for (int i = 0; i < 50; ++i) CHECK(list.parameters()[2]->master.as<double>()[i] == 1);
  for (int i = 0; i < 4; ++i) CHECK(list.buffers()[0]->value.as<double>()[i] == 0);
}

TEST_CASE("in lower precision the value is a rounded copy of the master") {
  const auto device = MakeCpuDevice({.threads = 1});
  ParameterList list;
  Parameter* p = list.Add("a", {3, 8}, DecayClass::kMatrix, InitKind::kNormal, 1);
  Parameter* router = list.Add("gate", {2, 8}, DecayClass::kMatrix, InitKind::kNormal, 1);
  router->value_in_accum = true;
  Memory memory(*device);
  memory.Give(list, {DType::kBF16, DType::kF32});
  InitialiseParameters(list, 1, *device);
  CHECK(p->value.dtype() == DType::kBF16);
  CHECK(p->master.dtype() == DType::kF32);
  CHECK(p->grad.dtype() == DType::kF32);
  for (int i = 0; i < 24; ++i) {
    CHECK(p->value.as<BFloat16>()[i].bits == BFloat16(p->master.as<float>()[i]).bits);
  }
  CHECK(router->value.dtype() == DType::kF32);
  CHECK(router->value.data() == router->master.data());
}

TEST_CASE("in a recipe: 8-bit copies of the master in both directions, and no BF16 weight beside them") {
  const QuantFormat format{QuantKind::kFp8Block, true};
  ParameterList list;
  Parameter* p = list.AddExpert("e", {4, 256, 384}, 1, 2, 1);
  list.Add("norm", {8}, DecayClass::kNorm, InitKind::kOnes, 0);
  p->in_recipe = true;
  {
    const auto dry = MakeDryDevice(DeviceKind::kCuda);
    Arena weights("weights", dry.get()), grads("grads", dry.get());
    AllocateParameters(list, {DType::kBF16, DType::kF32, {format}}, weights, &grads);
    CHECK(!p->value.defined());
    CHECK(!p->has_rounded_value());
    CHECK(list.parameters()[1]->value.dtype() == DType::kBF16);
    CHECK(!list.parameters()[1]->copies.defined());
    const size_t elements = 2 * 256 * 384, scales = 2 * 2 * 3 * 4;
    CHECK(weights.top() >= elements * (4 + 2) + 2 * scales);
    CHECK(weights.top() < elements * (4 + 2) + 2 * scales + 8 * 256);  // and alignment
    Arena evaluation("evaluation", dry.get());
    AllocateParameters(list, {DType::kBF16, DType::kF32, {format}}, evaluation, nullptr);
    CHECK(weights.top() - evaluation.top() >= elements);  // without gradients: of forward alone
    CHECK(!p->copies.cols.defined());
  }
  const auto device = MakeCpuDevice({.threads = 1});
  Memory memory(*device);
  memory.Give(list, {DType::kF32, DType::kF32, {format}});
  CHECK(p->value.data() == p->master.data());
  InitialiseParameters(list, 1, *device);
  const HostTensor codes(DType::kU8, {2, 384, 256}), scales(DType::kF32, {2, 3, 2});
  QuantizeWeights(Stream(device.get()), {.format = format, .w = p->master, .cols = {codes.view(), scales.view()}});
  for (int64_t i = 0; i < codes.elements(); ++i)
    REQUIRE(codes.as<uint8_t>()[i] == p->copies.cols.codes.as<uint8_t>()[i]);
  CHECK(scales.as<float>()[5] == p->copies.cols.scales.as<float>()[5]);
}

TEST_CASE("the first gradient of a step overwrites, the others add") {
  Parameter p;
  CHECK(p.TakeGradBeta() == 0);
  CHECK(p.TakeGradBeta() == 1);
  ParameterList list;
  Parameter* q = list.Add("q", {1}, DecayClass::kNorm, InitKind::kOnes, 0);
  CHECK(q->TakeGradBeta() == 0);
  list.BeginStep();
  CHECK(q->TakeGradBeta() == 0);
  // Squares are wanted of what is written first, where nothing is added to it, and are then those of the gradient.
  list.BeginStep(/*written_once=*/true);
  CHECK_FALSE(q->TakeGradWrite().squares.defined());  // nobody has room for them
  q->squares = Tensor(&list, DType::kF64, {1});
  list.BeginStep();
  CHECK_FALSE(q->TakeGradWrite().squares.defined());
  list.BeginStep(/*written_once=*/true);
  CHECK_FALSE(q->squared);
  const Parameter::GradWrite write = q->TakeGradWrite();
  CHECK(write.beta == 0);
  CHECK(write.squares.data() == q->squares.data());
  CHECK(q->squared);
  CHECK(q->TakeGradBeta() == 1);  // all the same something is
  CHECK_FALSE(q->squared);
  CHECK_FALSE(q->TakeGradWrite().squares.defined());
  CHECK_THROWS_AS(list.Add("q", {1}, DecayClass::kNorm, InitKind::kOnes, 0), InternalError);
  CHECK(list.Find("q") == q);
  CHECK(list.Find("r") == nullptr);
}

}  // namespace
}  // namespace yardmaster
