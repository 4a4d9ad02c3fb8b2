#include "src/device/arena.h"

#include <cmath>
#include <cstdint>
#include <exception>
#include <string>

#include "src/base/error.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

// The message of what `f` throws; "" if it throws nothing. (Catch2 2 and 3 name their string
// matchers differently.)
template <class F>
std::string MessageOf(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("arena: measures without data, then holds exactly what was measured") {
  const auto dry = MakeDryDevice();
  Arena plan("plan", dry.get());
  const auto step = [](Arena& arena) {
    arena.Allocate("a", DType::kF32, {3});
    {
      ArenaScope scope(arena);
      arena.Allocate("b", DType::kF64, {100});
    }
    return arena.Allocate("c", DType::kU8, {257});
  };
  CHECK(step(plan).data() == nullptr);
  CHECK(plan.high_water() == 256 + 1024);
  CHECK(plan.top() == 256 + 512);

  const auto cpu = MakeCpuDevice({.threads = 1});
  Arena real("saved", cpu.get());
  CHECK(step(real).data() == nullptr);  // not committed: measuring, on any device
  real.Release(0);
  real.Commit(plan.high_water());
  CHECK(real.capacity() == plan.high_water());
  const Tensor c = step(real);
  CHECK(c.data() != nullptr);
  CHECK(reinterpret_cast<uintptr_t>(c.data()) % 256 == 0);
  CHECK(real.high_water() == plan.high_water());
}

TEST_CASE("arena: going over the committed size names the arena and the tensor") {
  const auto cpu = MakeCpuDevice({.threads = 1});
  Arena arena("workspace", cpu.get());
  arena.Commit(1024);
  arena.Allocate("fits", DType::kF32, {256});
  const std::string message = MessageOf([&] { arena.Allocate("attention p", DType::kF32, {1}); });
  CHECK(Has(message, "workspace"));
  CHECK(Has(message, "attention p"));
  CHECK_THROWS_AS(arena.Commit(10), InternalError);
}

TEST_CASE("arena: an empty one and empty tensors are legal") {
  const auto cpu = MakeCpuDevice({.threads = 1});
  Arena arena("empty", cpu.get());
  arena.Commit(0);
  CHECK(arena.Allocate("nothing", DType::kF32, {0, 5}).elements() == 0);
  CHECK_THROWS_AS(arena.Allocate("something", DType::kF32, {1}), InternalError);
}

TEST_CASE("arena: release out of order, commit in use and commit on dry are bugs") {
  const auto cpu = MakeCpuDevice({.threads = 1});
  const auto dry = MakeDryDevice();
  Arena arena("a", cpu.get()), plan("p", dry.get());
  arena.Allocate("x", DType::kF32, {1});
  CHECK_THROWS_AS(arena.Commit(100), InternalError);
  CHECK_THROWS_AS(arena.Release(1000), InternalError);
  CHECK_THROWS_AS(plan.Commit(100), InternalError);
}

TEST_CASE("arena: poison turns what was released, and what was never written, into NaN") {
  const auto cpu = MakeCpuDevice({.threads = 1});
  Arena arena("a", cpu.get());
  arena.set_poison(true);
  arena.Commit(1024);
  const Tensor x = arena.Allocate("x", DType::kF32, {4});
  CHECK(std::isnan(x.as<float>()[3]));
  const size_t mark = arena.Mark();
  const Tensor y = arena.Allocate("y", DType::kF64, {2});
  x.as<float>()[0] = 1;
  y.as<double>()[0] = 2;
  arena.Release(mark);
  CHECK(x.as<float>()[0] == 1);
  CHECK(std::isnan(y.as<double>()[0]));
}

TEST_CASE("arena: without poison a release leaves the data") {
  const auto cpu = MakeCpuDevice({.threads = 1});
  Arena arena("a", cpu.get());
  arena.Commit(1024);
  const Tensor y = arena.Allocate("y", DType::kF64, {2});
  y.as<double>()[0] = 2;
  arena.Release(0);
  CHECK(y.as<double>()[0] == 2);
}

TEST_CASE("arena: memory that the machine does not have is an error with the size and the arena") {
  const auto cpu = MakeCpuDevice({.threads = 1});
  Arena arena("optimizer", cpu.get());
  const std::string message = MessageOf([&] { arena.Commit(size_t{1} << 50); });
  CHECK(Has(message, "optimizer"));
  CHECK(Has(message, "1125899906842624 bytes"));
  CHECK_THROWS_AS(arena.Commit(size_t{1} << 50), Error);
}

}  // namespace
}  // namespace yardmaster
