#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/device/cpu_parallel.h"
#include "src/device/device.h"
#include "src/device/openblas_setup.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

TEST_CASE("cpu device: says its threads and OpenBLAS's version and kernels") {
  const auto cpu = MakeCpuDevice({.threads = 3});
  CHECK(cpu->kind() == DeviceKind::kCpu);
  CHECK(cpu->description().starts_with("cpu (3 threads, OpenBLAS 0."));
  CHECK(cpu->description().ends_with(" kernels)"));
  CHECK(cpu->description().find(PrepareOpenBlas()) != std::string::npos);
  CHECK(MakeCpuDevice({.threads = 1})->description().starts_with("cpu (1 thread, "));
  CHECK_THROWS_AS(MakeCpuDevice({.threads = -1}), InternalError);
}

TEST_CASE("cpu device: memory is aligned and zeroed, copies copy") {
  const auto cpu = MakeCpuDevice({.threads = 1});
  auto* p = static_cast<unsigned char*>(cpu->Allocate(1000));
  CHECK(reinterpret_cast<uintptr_t>(p) % 256 == 0);
  CHECK(std::count(p, p + 1000, 0) == 1000);
  const std::vector<unsigned char> in = {1, 2, 3};
  std::vector<unsigned char> out(3);
  cpu->CopyFromHost(p, in.data(), 3);
  cpu->CopyToHost(out.data(), p, 3);
  CHECK(out == in);
  cpu->Free(p);
  cpu->Free(nullptr);
  std::string message;
  try {
    cpu->Allocate(size_t{1} << 52);
  } catch (const Error& e) {
    message = e.what();
  }
  CHECK(message.find("4503599627370496 bytes") != std::string::npos);
}

TEST_CASE("cpu device: staged copies and host copies are done at once") {
  const auto device = MakeCpuDevice({});
  CHECK_FALSE(device->runs_behind());
  void* p = device->Allocate(8);
  const auto copy = device->MakeHostCopy(8);
  const std::string one = "one", two = "two";
  device->StageFromHost(p, one.data(), 3);
  copy->Enqueue(Stream(device.get()), p, 3);
  device->StageFromHost(p, two.data(), 3);
  CHECK(std::string(static_cast<const char*>(copy->Wait()), 3) == one);
  copy->Enqueue(Stream(device.get()), p, 3);
  CHECK(std::string(static_cast<const char*>(copy->Wait()), 3) == two);
  device->Free(p);
}

TEST_CASE("dry device: copies do nothing, memory is refused") {
  const auto dry = MakeDryDevice();
  const Stream stream(dry.get());
  CHECK(stream.dry());
  stream.Synchronize();
  int host = 5;
  dry->CopyFromHost(nullptr, &host, sizeof(host));
  dry->CopyToHost(&host, nullptr, sizeof(host));
  CHECK(host == 5);
  CHECK_THROWS_AS(dry->Allocate(1), InternalError);
}

TEST_CASE("parallel for: every index once, in chunks that do not depend on the threads") {
  for (const int threads : {1, 2, 5}) {
    const auto cpu = MakeCpuDevice({.threads = threads});
    const Stream stream(cpu.get());
    for (const int64_t n : {0, 1, 7, 64, 1000}) {
      for (int repeat = 0; repeat < 50; ++repeat) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
        std::atomic<bool> right{true};
        ParallelFor(stream, n, 7, [&](int64_t begin, int64_t end) {
          if (begin % 7 != 0 || (end != n && end != begin + 7) || begin >= end) right = false;
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        for (const auto& count : seen) right = right && count == 1;
        if (!right) FAIL("n " << n << ", threads " << threads);
      }
    }
  }
}

TEST_CASE("parallel for: within a chunk it runs in place, and an exception comes out") {
  const auto cpu = MakeCpuDevice({.threads = 4});
  const Stream stream(cpu.get());
  std::atomic<int> inner{0};
  ParallelFor(stream, 10, 1, [&](int64_t, int64_t) {
    ParallelFor(stream, 10, 1, [&](int64_t, int64_t) { ++inner; });
  });
  CHECK(inner == 100);
  CHECK_THROWS_AS(ParallelFor(stream, 10, 1,
                              [](int64_t begin, int64_t) {
                                if (begin == 6) throw std::out_of_range("six");
                              }),
                  std::out_of_range);
  std::atomic<int> after{0};
  ParallelFor(stream, 10, 1, [&](int64_t, int64_t) { ++after; });
  CHECK(after == 10);
}

TEST_CASE("grain: at most so many chunks, none too small") {
  CHECK(GrainFor(1000, 16, 32) == 32);
  CHECK(GrainFor(100, 16, 32) == 16);
  CHECK(GrainFor(0, 16, 32) == 16);
}

}  // namespace
}  // namespace yardmaster
