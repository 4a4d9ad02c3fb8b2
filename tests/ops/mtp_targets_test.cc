#include "src/ops/mtp_targets.h"

#include <cstring>

#include "src/ops/step_control.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

struct Shifted {
  std::vector<double> inputs, targets;
  double valid = 0;
};

Shifted Shift(const std::vector<double>& tokens, const std::vector<double>& targets,
              const std::vector<double>& start, int64_t B, int64_t depth) {
  CpuFixture cpu;
  const Shape shape{B, static_cast<int64_t>(tokens.size()) / B};
  MtpTargetsArgs args{.tokens = cpu.Make(DType::kI32, shape, tokens),
                      .targets = cpu.Make(DType::kI32, shape, targets),
                      .depth = depth,
                      .inputs = cpu.Make(DType::kI32, shape),
                      .mtp_targets = cpu.Make(DType::kI32, shape),
                      .valid = cpu.Make(DType::kI64, {1}, {1000})};
  if (!start.empty()) args.document_start = cpu.Make(DType::kI32, shape, start);
  MtpTargets(cpu.stream(), args);
  Shifted out{ValuesOf(args.inputs), ValuesOf(args.mtp_targets), ValuesOf(args.valid)[0] - 1000};
  args.inputs = args.mtp_targets = Tensor();  // counting alone gives the same number
  MtpTargets(cpu.stream(), args);
  CHECK(ValuesOf(args.valid)[0] - 1000 == 2 * out.valid);
  return out;
}

using V = std::vector<double>;

TEST_CASE("mtp targets: one document, depths 1 and more, samples kept apart") {
  const V tokens = {10, 11, 12, 13, 20, 21, 22, 23}, targets = {11, 12, 13, 14, 21, 22, 23, 24};
  const Shifted one = Shift(tokens, targets, {}, 2, 1);
  CHECK(one.inputs == V{11, 12, 13, 14, 21, 22, 23, 24});
  CHECK(one.targets == V{12, 13, 14, -1, 22, 23, 24, -1});
  CHECK(one.valid == 6);
  const Shifted two = Shift(tokens, targets, {}, 2, 2);
  CHECK(two.inputs == V{12, 13, 14, 0, 22, 23, 24, 0});
  CHECK(two.targets == V{13, 14, -1, -1, 23, 24, -1, -1});
  CHECK(Shift(tokens, targets, {}, 2, 4).valid == 0);
  CHECK(Shift(tokens, targets, {}, 2, 9).targets == V(8, -1));
}

TEST_CASE("mtp targets: never across the end of a document") {
  // Documents {1, 2, 3, 4} and {5, 6, ...}: the last target, 7, may begin another.
  const V tokens = {1, 2, 3, 4, 5, 6}, targets = {2, 3, 4, 5, 6, 7}, start = {0, 0, 0, 0, 4, 4};
  CHECK(Shift(tokens, targets, start, 1, 1).targets == V{3, 4, -1, -1, -1, -1});
  CHECK(Shift(tokens, targets, start, 1, 2).targets == V{4, -1, -1, -1, -1, -1});
  CHECK(Shift(tokens, targets, V(6, 0), 1, 1).targets == V{3, 4, 5, 6, -1, -1});
}

TEST_CASE("mtp targets: what the main model ignores is ignored") {
  const Shifted s = Shift({1, 2, 3, 4}, {2, -1, 4, -1}, {}, 1, 1);
  CHECK(s.targets == V{-1, 4, -1, -1});
  CHECK(s.inputs == V{2, 3, 4, 0});  // a missing token is token 0
  CHECK(s.valid == 1);
}

TEST_CASE("mtp loss scale: the weight at the tokens trained, over what counts") {
  CpuFixture cpu;
  DeviceSchedule schedule;
  schedule.num_segments = 2;
  schedule.until_tokens[0] = 100, schedule.until_tokens[1] = 1000;
  schedule.from[0] = schedule.to[0] = 0.3, schedule.from[1] = schedule.to[1] = 0.1;
  const auto bytes = [&](const auto& value) {
    const Tensor t = cpu.Make(DType::kU8, {static_cast<int64_t>(sizeof(value))});
    std::memcpy(t.data(), &value, sizeof(value));
    return t;
  };
  const auto scale = [&](int64_t tokens, double valid) {
    StepState state;
    state.tokens = tokens;
    const Tensor out = cpu.Make(DType::kF64, {1}, {-1});
    MtpLossScale(cpu.stream(), {cpu.Make(DType::kI64, {1}, {valid}), bytes(schedule), bytes(state), out});
    return ValuesOf(out)[0];
  };
  CHECK(scale(0, 6) == 0.3 / 6);
  CHECK(scale(99, 6) == 0.3 / 6);
  CHECK(scale(100, 5) == 0.1 / 5);
  CHECK(scale(0, 0) == 0);
}

}  // namespace
}  // namespace yardmaster::testing
