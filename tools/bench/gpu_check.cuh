// File: tools/bench/gpu_check.cuh
//
// What the correctness programs of kernels share: poison, the comparison of a case with its
// reference in device memory, and the count of what was wrong.
#pragma once

#include <cmath>
#include <string>

#include "tools/bench/gpu_bench.cuh"

namespace yardmaster::bench {

inline constexpr uint16_t kPoison16 = 0x7FA5;      // a NaN
inline constexpr uint32_t kPoison32 = 0x7FA5A5A5;  // a NaN
inline constexpr int64_t kGuard = 4096;  // elements behind every output that nobody may touch

struct Errors {
  double difference2, reference2;
  unsigned long long
      changed;  // words that should have kept their bits, or are NaN where they should not be
};

template <typename T>
__global__ void CountOtherKernel(const T* data, size_t count, T value, Errors* errors) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    if (data[i] != value) atomicAdd(&errors->changed, 1ull);
  }
}

__global__ void CompareKernel(const uint32_t* a, const uint32_t* b, size_t words, Errors* errors) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < words;
       i += size_t{gridDim.x} * blockDim.x) {
    if (a[i] != b[i]) atomicAdd(&errors->changed, 1ull);
  }
}

class Checker {
 public:
  Checker() : errors_(sizeof(Errors)) {}

  Errors* Start() {
    BENCH_CHECK(cudaMemset(errors_.As<void>(), 0, sizeof(Errors)));
    return errors_.As<Errors>();
  }

  // Reads the errors and says so where they are too large.
  void Finish(const std::string& what, double tolerance) {
    Errors e;
    BENCH_CHECK(cudaDeviceSynchronize());
    BENCH_CHECK(cudaMemcpy(&e, errors_.As<void>(), sizeof(e), cudaMemcpyDeviceToHost));
    const double relative =
        e.reference2 > 0.0 ? std::sqrt(e.difference2 / e.reference2) : std::sqrt(e.difference2);
    ++checks_;
    worst_ = std::max(worst_, relative / tolerance);
    if (!(relative <= tolerance) || e.changed != 0) {
      if (++failures_ <= 20) {
        std::printf(
            "WRONG %s: relative L2 %.3g (limit %.1g), %llu words changed or NaN\n",
            what.c_str(), relative, tolerance, e.changed);
      }
    }
  }

  // worst: the largest relative L2, as a part of its tolerance.
  int checks() const { return checks_; }
  int failures() const { return failures_; }
  double worst() const { return worst_; }

 private:
  DeviceMemory errors_;
  int checks_ = 0;
  int failures_ = 0;
  double worst_ = 0.0;
};

}  // namespace yardmaster::bench
