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

// Sums of squares that a weight gradient [matrices, n, k] gave for 16 rows by `columns` each, in the
// order [matrices, n / 128, k / columns, 8].
__global__ void CheckSquaresKernel(const float* dw, int64_t matrices, int n, int k, int columns,
                                   const double* squares, Errors* errors) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x, tiles = k / columns;
  if (i >= matrices * (n / 16) * tiles) return;
  const int64_t chunk = i / 8 / tiles;  // of 128 rows, over all matrices
  const float* from = dw + (chunk * 128 + i % 8 * 16) * k + i / 8 % tiles * columns;
  double sum = 0.0;
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < columns; ++column) {
      const double value = from[int64_t{row} * k + column];
      sum += value * value;
    }
  }
  if (!(fabs(squares[i] - sum) <= 1e-6 * sum)) atomicAdd(&errors->changed, 1ull);
  atomicAdd(&errors->difference2, (squares[i] - sum) * (squares[i] - sum));
  atomicAdd(&errors->reference2, sum * sum);
}

inline int Blocks(int64_t threads) { return static_cast<int>((threads + 255) / 256); }

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

struct SquaresShape {
  int64_t matrices;
  int n, k, columns;  // columns: of a tile
};

// The weight gradient that lies in `dw` once more, by launch(dw, squares): the same bits in `again`, and
// in `squares`, poisoned before, its sums.
template <class Launch>
void CheckSquaresOf(const std::string& what, const SquaresShape& s, const DeviceMemory& dw,
                    const DeviceMemory& again, const DeviceMemory& squares, const Launch& launch,
                    Checker* checker) {
  const int64_t weights = s.matrices * s.n * s.k, sums = weights / (16 * s.columns);
  Fill(squares.As<uint32_t>(), 2 * sums + kGuard, kPoison32);
  Fill(again.As<uint32_t>(), weights, kPoison32);
  BENCH_CHECK(launch(again.As<float>(), squares.As<double>()));
  Errors* errors = checker->Start();
  CompareKernel<<<264, 256>>>(dw.As<uint32_t>(), again.As<uint32_t>(), weights, errors);
  CheckSquaresKernel<<<Blocks(sums), 256>>>(dw.As<float>(), s.matrices, s.n, s.k, s.columns,
                                            squares.As<double>(), errors);
  CountOtherKernel<<<16, 256>>>(squares.As<uint32_t>() + 2 * sums, kGuard, kPoison32, errors);
  checker->Finish(what, 1e-6);
}

}  // namespace yardmaster::bench
