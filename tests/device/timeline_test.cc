#include "src/device/timeline.h"

#include "src/ops/elementwise.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

TEST_CASE("timeline: what an op calls belongs to it; times are taken once") {
  const auto cpu = MakeCpuDevice({.threads = 1});
  const auto timeline = cpu->MakeTimeline();
  timeline->Begin(nullptr, "outer");
  timeline->Begin(nullptr, "inner");
  CHECK_FALSE(timeline->describes());
  timeline->End(nullptr);
  timeline->Describe("3 x 4", 12, 48);
  timeline->End(nullptr);
  timeline->Begin(nullptr, "second");
  timeline->End(nullptr);
  const StepTimes times = timeline->Take();
  REQUIRE(times.ops.size() == 2);
  CHECK(times.ops[0].op == "outer");
  CHECK(times.ops[0].what == "3 x 4");
  CHECK(times.ops[0].flops == 12);
  CHECK(times.ops[0].bytes == 48);
  CHECK(times.ops[1].op == "second");
  CHECK(times.ops[1].what.empty());
  CHECK(times.ops[0].seconds >= 0);
  CHECK(times.seconds >= times.ops[0].seconds + times.ops[1].seconds);
  CHECK(timeline->Take().ops.empty());
}

TEST_CASE("timeline: ops report while it is set, with their bytes") {
  CpuFixture cpu;
  const Tensor x = cpu.Make(DType::kF32, {3, 5}), y = cpu.Make(DType::kF32, {3, 5});
  const auto timeline = cpu.device().MakeTimeline();
  Fill(cpu.stream(), 1, x);
  cpu.device().set_timeline(timeline.get());
  Copy(cpu.stream(), x, y);
  CHECK_THROWS_AS(Add(cpu.stream(), x, cpu.Make(DType::kF32, {15}), y), InternalError);  // ends all the same
  cpu.device().set_timeline(nullptr);
  Fill(cpu.stream(), 2, x);
  const StepTimes times = timeline->Take();
  REQUIRE(times.ops.size() == 2);
  CHECK(times.ops[0].op == "Copy");
  CHECK(times.ops[0].bytes == 2 * 15 * 4);
  CHECK(times.ops[1].op == "Add");
}

TEST_CASE("the cpu device does not record") {
  const auto cpu = MakeCpuDevice({.threads = 1});
  CHECK_FALSE(cpu->records());
  CHECK_THROWS_AS(cpu->Record(Stream(cpu.get()), [] {}), InternalError);
}

}  // namespace
}  // namespace yardmaster::testing
