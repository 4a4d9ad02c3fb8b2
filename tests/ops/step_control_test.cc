#include "src/ops/step_control.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "src/config/schedule.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

template <class S>
Tensor MakeBytes(CpuFixture& cpu, const S& s) {
  const Tensor t = cpu.Make(DType::kU8, {static_cast<int64_t>(sizeof(S))});
  std::memcpy(t.data(), &s, sizeof(s));
  return t;
}
StepState StateOf(const Tensor& t) {
  StepState s;
  std::memcpy(&s, t.data(), sizeof(s));
  return s;
}

DeviceSchedule DeviceForm(const Schedule& schedule) {
  DeviceSchedule d;
  for (const ScheduleSegment& s : schedule.segments) {
    const int i = d.num_segments++;
    d.kind[i] = static_cast<int32_t>(s.kind);
    d.until_tokens[i] = s.until_tokens < 0 ? std::numeric_limits<int64_t>::max() : s.until_tokens;
    d.from[i] = s.from, d.to[i] = s.to;
  }
  return d;
}

TEST_CASE("norm chunks: 128 rows, never across experts") {
  CHECK(NumNormChunks({7}) == 1);
  CHECK(NumNormChunks({128, 3}) == 1);
  CHECK(NumNormChunks({129, 3}) == 2);
  CHECK(NumNormChunks({5, 129, 3}) == 10);
  CHECK(NumNormChunks({0, 3}) == 0);
}

TEST_CASE("sum of squares: each chunk against plain code, and a shard's chunks are the global ones") {
  for (const DType type : {DType::kF32, DType::kF64}) {
    for (const Shape& shape : {Shape{300, 7}, Shape{3, 130, 5}, Shape{33}, Shape{256, 2}}) {
      CpuFixture one(1), three(3);
      const std::vector<double> values = RandomValues("x", shape.elements());
      const Tensor x = one.Make(type, shape, values), partials = one.Make(DType::kF64, {NumNormChunks(shape)});
      SumSquares(one.stream(), x, partials);
      const Tensor again = three.Make(DType::kF64, {NumNormChunks(shape)});
      SumSquares(three.stream(), three.Make(type, shape, values), again);
      CHECK(BytesOf(partials) == BytesOf(again));

      const int64_t matrices = shape.rank() == 3 ? shape[0] : 1, cols = shape[-1], rows = shape.elements() / cols / matrices;
      std::vector<double> expected;
      for (int64_t e = 0; e < matrices; ++e) {
        for (int64_t r = 0; r < rows; ++r) {
          if (r % 128 == 0) expected.push_back(0);
          for (int64_t c = 0; c < cols; ++c) {
            const double value = ValuesOf(x.Reshape({shape.elements()}))[static_cast<size_t>((e * rows + r) * cols + c)];
            expected.back() += value * value;
          }
        }
      }
      CHECK(RelativeL2(ValuesOf(partials), expected) < 1e-14);
      if (shape.rank() == 2) {
        const Tensor shard = x.Slice(128, shape[0]), of_shard = one.Make(DType::kF64, {NumNormChunks(shard.shape())});
        SumSquares(one.stream(), shard, of_shard);
        CHECK(BytesOf(of_shard) == BytesOf(partials.Slice(1, partials.dim(0))));
      }
    }
  }
}

StepState Judge(std::vector<double> partials, double loss_sum, double clip, StepState before) {
  CpuFixture cpu;
  const Tensor state = MakeBytes(cpu, before);
  JudgeStep(cpu.stream(), {.partials = cpu.Make(DType::kF64, {static_cast<int64_t>(partials.size())}, partials),
                           .loss_sum = cpu.Make(DType::kF64, {1}, {loss_sum}), .loss_scale = 0.5, .clip_norm = clip,
                           .learning_rate = MakeBytes(cpu, DeviceForm({{{SegmentKind::kLinear, 100, 0, 1}, {SegmentKind::kConstant, -1, 1, 1}}})),
                           .bias_speed = MakeBytes(cpu, DeviceForm(Schedule::Constant(1e-3))), .state = state});
  return StateOf(state);
}

TEST_CASE("norm addends: as many as a chunk has, the last with what is left, for many tensors") {
  CpuFixture cpu;
  std::vector<NormAddends> parts;
  std::vector<std::vector<double>> expected;
  for (const auto& [n, per_chunk] : {std::pair<int64_t, int64_t>{12, 4}, {13, 4}, {3, 448}, {1000, 7}, {5, 1}}) {
    const std::vector<double> values = RandomValues("a", n);
    std::vector<double> sums(static_cast<size_t>((n + per_chunk - 1) / per_chunk), 0);
    for (int64_t i = 0; i < n; ++i) sums[static_cast<size_t>(i / per_chunk)] += values[static_cast<size_t>(i)];
    expected.push_back(sums);
    parts.push_back({cpu.Make(DType::kF64, {n}, values), per_chunk, cpu.Make(DType::kF64, {static_cast<int64_t>(sums.size())})});
  }
  SumNormAddends(cpu.stream(), parts);
  for (size_t i = 0; i < parts.size(); ++i) CHECK(ValuesOf(parts[i].partials) == expected[i]);
  parts[0].partials = cpu.Make(DType::kF64, {4});
  CHECK_THROWS_AS(SumNormAddends(cpu.stream(), parts), InternalError);
}

TEST_CASE("judge: norm, clip factor, loss and schedules") {
  StepState s;
  s.step = 3, s.tokens = 25, s.skipped = 2;
  const StepState j = Judge({9, 16}, 6, 2, s);
  CHECK(j.verdict == 0);
  CHECK(j.grad_norm == 5);
  CHECK(j.clip_factor == 2 / (5 + 1e-6));
  CHECK(j.loss == 3);
  CHECK(j.learning_rate == 0.25);
  CHECK(j.bias_speed == 1e-3);
  CHECK((j.step == 3 && j.tokens == 25 && j.skipped == 2));
  CHECK(Judge({9, 16}, 6, 10, s).clip_factor == 1);
  CHECK(Judge({9, 16}, 6, 0, s).clip_factor == 1);
  CHECK(Judge({0}, 6, 1, s).clip_factor == 1);
}

TEST_CASE("judge: what is not finite is bad, and overflow outranks it") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  StepState s;
  CHECK(Judge({1, nan}, 1, 1, s).verdict == 1);
  CHECK(Judge({inf}, 1, 1, s).verdict == 1);
  CHECK(Judge({1}, nan, 1, s).verdict == 1);
  CHECK(Judge({1}, -inf, 1, s).verdict == 1);
  s.overflow = 1;
  CHECK(Judge({1}, 1, 1, s).verdict == 2);
  CHECK(Judge({nan}, 1, 1, s).verdict == 2);
  CHECK(Judge({nan}, 1, 1, s).overflow == 1);  // sticky
  s.overflow = 0, s.verdict = 2;
  CHECK(Judge({1}, 1, 1, s).verdict == 0);  // judged anew each step
}

TEST_CASE("finish: counts good steps and their tokens, and non-finite ones as skipped") {
  CpuFixture cpu;
  for (const int32_t verdict : {0, 1, 2}) {
    StepState s;
    s.step = 5, s.tokens = int64_t{1} << 40, s.skipped = 7, s.verdict = verdict;
    const Tensor state = MakeBytes(cpu, s);
    FinishStep(cpu.stream(), 1000, state);
    CHECK(StateOf(state).step == (verdict == 0 ? 6 : 5));
    CHECK(StateOf(state).tokens == (int64_t{1} << 40) + (verdict == 0 ? 1000 : 0));
    CHECK(StateOf(state).skipped == (verdict == 1 ? 8 : 7));
  }
}

TEST_CASE("device schedules follow the config's") {
  const Schedule schedule{{{SegmentKind::kLinear, 1000, 0, 3e-4},
                           {SegmentKind::kConstant, 5000, 3e-4, 3e-4},
                           {SegmentKind::kCosine, 20000, 3e-4, 3e-5},
                           {SegmentKind::kLinear, 30000, 3e-5, 0}}};
  for (int64_t tokens = 0; tokens < 40000; tokens += 125) {
    CHECK(DeviceScheduleValue(DeviceForm(schedule), tokens) == EvaluateSchedule(schedule, tokens));
  }
  CHECK(DeviceScheduleValue(DeviceForm(Schedule::Constant(2)), int64_t{1} << 60) == 2);
}

TEST_CASE("router bias: signs in integers, counts far beyond 2^32, nothing on a bad verdict") {
  CpuFixture cpu;
  const int64_t big = int64_t{1} << 50;
  for (const DType type : {DType::kF32, DType::kF64}) {
    for (const int32_t verdict : {0, 1, 2}) {
      StepState s;
      s.verdict = verdict, s.bias_speed = 0.125;
      const Tensor counts = cpu.Make(DType::kI64, {4}), bias = cpu.Make(type, {4}, {1, 2, 3, 4});
      // Mean 2^50: one token more or less decides, which a float or double mean of counts this large may not see.
      const int64_t values[] = {big + 1, big - 1, big, big};
      std::memcpy(counts.data(), values, sizeof(values));
      RouterBiasUpdate(cpu.stream(), {.counts = counts, .state = MakeBytes(cpu, s), .bias = bias});
      CHECK(ValuesOf(bias) == (verdict == 0 ? std::vector<double>{0.875, 2.125, 3, 4} : std::vector<double>{1, 2, 3, 4}));
      CHECK(ValuesOf(counts) == std::vector<double>{0, 0, 0, 0});
    }
  }
  StepState s;
  s.bias_speed = 1;
  const Tensor counts = cpu.Make(DType::kI64, {2}, {8, 0}), bias = cpu.Make(DType::kF32, {2});
  RouterBiasUpdate(cpu.stream(), {.counts = counts, .state = MakeBytes(cpu, s), .bias = bias});
  CHECK(ValuesOf(bias) == std::vector<double>{-1, 1});
}

}  // namespace
}  // namespace yardmaster::testing
