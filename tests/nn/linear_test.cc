#include "src/nn/linear.h"

#include <string>
#include <vector>

#include "tests/catch.h"

namespace yardmaster {
namespace {

// Bytes of workspace that the three products of a linear layer plan for a GPU. Operands are so few that scales in the
// order of units that multiply mxfp8, 512 bytes at least, are the most of it where they are tried.
size_t Planned(QuantKind kind, GroupedGemmMode mode) {
  const std::unique_ptr<Device> dry = MakeDryDevice(DeviceKind::kCuda);
  Arena weights("weights", dry.get()), grads("grads", dry.get()), tensors("tensors", dry.get()), work("work", dry.get());
  ParameterList list;
  const Linear linear(list, "w", 16, 16, 0.1);
  Context ctx{.stream = Stream(dry.get()),
              .work = work,
              .types = {DType::kBF16, DType::kF32, {.format = QuantFormat{kind}}},
              .how = {.grouped_gemm = mode}};
  AllocateParameters(list, ctx.types, weights, &grads);
  const Tensor x = tensors.Allocate("x", DType::kBF16, {1, 16}), y = tensors.Allocate("y", DType::kBF16, {1, 16});
  linear.Forward(ctx, x, y);
  linear.BackwardInput(ctx, y, x);
  linear.BackwardWeight(ctx, y, x);
  return work.high_water();
}

TEST_CASE("moe.gemm other than auto keeps mxfp8's linear layers from units, and leaves fp8_block's where they are") {
  for (const GroupedGemmMode mode : {GroupedGemmMode::kPortable, GroupedGemmMode::kLoop, GroupedGemmMode::kHopper}) {
    CHECK(Planned(QuantKind::kMxfp8, mode) < Planned(QuantKind::kMxfp8, GroupedGemmMode::kAuto));
    CHECK(Planned(QuantKind::kFp8Block, mode) == Planned(QuantKind::kFp8Block, GroupedGemmMode::kAuto));
  }
}

}  // namespace
}  // namespace yardmaster
