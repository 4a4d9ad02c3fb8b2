// File: tools/bench/lt_grouped_check.cu
//
// Correctness of the grouped products by cuBLASLt, in BF16 and in MXFP8 with the scales' way into
// tiles, against sums in double over the same values: ragged counts (0, 1, primes, hundreds), odd
// and even numbers of groups, with and without offsets, an addend, rows wider than the matrix, both
// betas. Values, codes and scales beyond the last row are NaN; outputs are poisoned before; what
// must not be written is compared bit by bit. Needs cublasLt.h of cuBLAS 13.3 or later.
//   on Blackwell, with the library:
// nvcc -std=c++20 -O3 -gencode=arch=compute_100f,code=sm_100f --expt-relaxed-constexpr -I. -o check
//   tools/bench/lt_grouped_check.cu kernels/grouped_gemm/grouped_gemm_sm100_cublaslt.cu
//   kernels/grouped_gemm/grouped_gemm_mxfp8_sm100_cublaslt.cu kernels/quantize/tiles.cu -lcublasLt
//   on any GPU, with a stand-in for it (lt_stand_in.cuh): -DYM_LT_STAND_IN instead of -lcublasLt
//
//   check [cases = 40]
// Exit status 1 where anything is wrong. Limits: relative L2 1e-5; of BF16 outputs what exceeds
// half a unit in the last place counts.
#include <random>
#include <string>

#include "kernels/grouped_gemm/grouped_gemm_mxfp8_sm100_cublaslt.h"
#include "kernels/quantize/quantize.h"
#include "tools/bench/fp8_data.cuh"
#include "tools/bench/gpu_check.cuh"
#ifdef YM_LT_STAND_IN
#include "tools/bench/lt_stand_in.cuh"
#endif

namespace yardmaster::bench {

namespace {

using bf16 = __nv_bfloat16;

constexpr double kTolerance = 1e-5;

// Rows of codes or values, the contraction last.
struct Mx {
  const uint8_t* codes;
  const uint8_t* scales;  // [length / 32, scales_ld]
  int64_t ld, scales_ld;
  __device__ double At(int64_t row, int64_t k) const {
    return CodeValue(codes[row * ld + k]) * ldexp(1.0, scales[k / 32 * scales_ld + row] - 127);
  }
};
struct Bf {
  const bf16* values;
  int64_t row_step, k_step;
  __device__ double At(int64_t row, int64_t k) const {
    return static_cast<double>(__bfloat162float(values[row * row_step + k * k_step]));
  }
};
// Of group e.
__device__ Mx OfGroup(const Mx& m, int64_t e, int64_t rows, int64_t length) {
  return {m.codes + e * rows * length, m.scales + e * rows * (length / 32), m.ld, m.scales_ld};
}
__device__ Bf OfGroup(const Bf& m, int64_t e, int64_t rows, int64_t length) {
  return {m.values + e * rows * length, m.row_step, m.k_step};
}

struct Groups {
  const int64_t* offsets;  // int64 [groups + 1]
  int groups;
  int64_t rows;
};

__device__ void Count(double value, double sum, bool rounded, Errors* errors) {
  if (isnan(value)) atomicAdd(&errors->changed, 1ull);
  const double half_unit = value == 0.0 || !rounded ? 0.0 : ldexp(1.0, ilogb(value) - 8);
  const double difference = fmax(0.0, fabs(value - sum) - half_unit);
  atomicAdd(&errors->difference2, difference * difference);
  atomicAdd(&errors->reference2, sum * sum);
}

// A thread for each y[row, column], column < y_ld: beyond `width` nothing may have been written.
template <class Matrix>
__global__ void CheckRowsKernel(Groups g, Matrix in, Matrix w, int64_t width, int64_t length,
                                const bf16* y, int64_t y_ld, const bf16* c, Errors* errors) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= g.rows * y_ld) return;
  const int64_t row = i / y_ld, column = i % y_ld;
  int e = 0;
  while (e < g.groups && row >= g.offsets[e + 1]) ++e;
  if (e == g.groups || column >= width) {
    if (__bfloat16_as_ushort(y[i]) != kPoison16) atomicAdd(&errors->changed, 1ull);
    return;
  }
  const Matrix weight = OfGroup(w, e, width, length);
  double sum = c == nullptr ? 0.0 : static_cast<double>(__bfloat162float(c[row * width + column]));
  for (int64_t k = 0; k < length; ++k) sum += in.At(row, k) * weight.At(column, k);
  Count(static_cast<double>(__bfloat162float(y[i])), sum, true, errors);
}

// dy and x by columns of the aligned row space (`aligned`) or by rows.
template <class Matrix, class T>
__global__ void CheckWeightKernel(Groups g, Matrix dy, Matrix x, int64_t n, int64_t k, bool aligned,
                                  const T* dw, const float* before, Errors* errors) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= g.groups * n * k) return;
  const int64_t e = i / (n * k), row = i / k % n, column = i % k,
                rows = g.offsets[e + 1] - g.offsets[e];
  int64_t begin = g.offsets[e];
  if (aligned) {
    begin = 0;
    for (int64_t l = 0; l < e; ++l) begin += (g.offsets[l + 1] - g.offsets[l] + 127) / 128 * 128;
  }
  double sum = before == nullptr ? 0.0 : before[i];
  for (int64_t r = begin; r < begin + rows; ++r) sum += dy.At(row, r) * x.At(column, r);
  Count(static_cast<double>(static_cast<float>(dw[i])), sum, sizeof(T) == 2, errors);
}

__global__ void FillMxScalesKernel(uint8_t* scales, size_t count, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x)
    scales[i] = static_cast<uint8_t>(116 + Mix(Mix(seed) ^ i) % 8);
}

struct Case {
  int groups;
  int64_t n, k, rows, extra;  // extra: columns of y beyond the matrix
  std::vector<int64_t> offsets;
  bool one;  // without offsets
  std::string what;
};

Case RandomCase(int number, std::mt19937* random) {
  const int64_t kSizes[] = {32, 64, 96, 128, 160, 224, 256, 288, 416, 512, 544};
  const int64_t kCounts[] = {0, 0, 1, 2, 7, 16, 31, 97, 127, 128, 129, 191, 256, 257, 311, 509};
  const auto pick = [&](const auto& list) {
    return list[(*random)() % (sizeof(list) / sizeof(list[0]))];
  };
  Case c;
  c.one = number % 5 == 4;
  c.groups = c.one ? 1 : 1 + static_cast<int>((*random)() % 41);
  c.n = pick(kSizes), c.k = pick(kSizes);
  c.offsets.assign(c.groups + 1, 0);
  for (int e = 0; e < c.groups; ++e) c.offsets[e + 1] = c.offsets[e] + pick(kCounts) + c.one;
  c.rows = c.offsets[c.groups] + (c.one ? 0 : (*random)() % 3 * 77);
  c.extra = (*random)() % 2 * 24;
  c.what = "case " + std::to_string(number) + ": groups " + std::to_string(c.groups) +
           (c.one ? " without offsets" : "") + " n " + std::to_string(c.n) + " k " +
           std::to_string(c.k) + " rows " + std::to_string(c.rows) + " extra " +
           std::to_string(c.extra);
  return c;
}

class Program {
 public:
  void Run(const Case& c) {
    groups_ = {offsets_.As<int64_t>(), c.groups, c.rows};
    BENCH_CHECK(cudaMemcpy(offsets_.As<void>(), c.offsets.data(), c.offsets.size() * 8,
                           cudaMemcpyHostToDevice));
    MxCase(c);
    if (!c.one) Bf16Case(c);
  }
  int Report() {
    std::printf("%d comparisons, %d wrong, worst %.3g of its limit, %d products not supported\n",
                checker_.checks(), checker_.failures(), checker_.worst(), unsupported_);
    int failures = checker_.failures();
#ifdef YM_LT_STAND_IN
    const unsigned long long refused = LtStandInErrors();
    std::printf("stand-in: %llu groups against the documented rules\n", refused);
    if (refused != 0) failures = 1;
    if (unsupported_ != 0) failures = 1;
#endif
    return failures != 0;
  }

 private:
  const int64_t* Offsets(const Case& c) const { return c.one ? nullptr : groups_.offsets; }

  // False, and counted, where the library has no algorithm.
  bool Done(cublasStatus_t status, const std::string& what) {
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
      ++unsupported_;
      return false;
    }
    std::printf("WRONG %s: status %d\n", what.c_str(), static_cast<int>(status));
    std::exit(1);
  }

  void Poison(const DeviceMemory& m) {
    FillKernel<<<1056, 256>>>(m.As<uint16_t>(), m.bytes() / 2, kPoison16);
  }

  // Codes [rows, length] of `used` rows, NaN beyond, and scales.
  Mx Matrix(const DeviceMemory& codes, const DeviceMemory& scales, int64_t rows, int64_t used,
            int64_t length) {
    const int64_t scales_ld = (rows + 3) / 4 * 4;
    BENCH_CHECK(cudaMemset(codes.As<void>(), kNanCode, codes.bytes()));
    FillCodes(codes.As<uint8_t>(), used * length, ++seed_);
    FillMxScalesKernel<<<256, 256>>>(scales.As<uint8_t>(), length / 32 * scales_ld, ++seed_);
    return {codes.As<uint8_t>(), scales.As<uint8_t>(), length, scales_ld};
  }

  void MxCase(const Case& c) {
    const int64_t used = c.offsets[c.groups];
    const auto rows = [&](int64_t width, int64_t length, int64_t extra, bool addend,
                          const char* op) {
      const std::string what = c.what + " mxfp8 " + op;
      const Mx x = Matrix(a_, a_scales_, c.rows, used, length);
      FillCodes(b_.As<uint8_t>(), c.groups * width * length, ++seed_);
      FillMxScalesKernel<<<256, 256>>>(b_scales_.As<uint8_t>(), c.groups * width * length / 32,
                                       ++seed_);
      const Mx w{b_.As<uint8_t>(), b_scales_.As<uint8_t>(), length, width};
      FillNormal(c_.As<bf16>(), c.rows * width, ++seed_, 8.0f);
      Poison(d_);
      BENCH_CHECK(MxScalesToTiles(x.scales, x.scales_ld, c.rows, length / 32, Offsets(c), c.groups,
                                  a_tiles_.As<uint8_t>(), nullptr));
      BENCH_CHECK(MxWeightScalesToTiles(w.scales, c.groups, width, length / 32,
                                        b_tiles_.As<uint8_t>(), nullptr));
      const int64_t y_ld = width + extra;
      const Mxfp8Rows problem{.n = width,
                              .k = length,
                              .x = {x.codes, a_tiles_.As<uint8_t>()},
                              .w = {w.codes, b_tiles_.As<uint8_t>()},
                              .y = d_.As<char>(),
                              .c = addend ? c_.As<char>() : nullptr,
                              .y_ld = y_ld,
                              .c_ld = addend ? width : 0};
      if (!Done(GroupedGemmMxfp8RowsLt(Resources(), problem, c.rows, Offsets(c), c.groups,
                                       addend ? 1.0f : 0.0f, nullptr),
                what))
        return;
      Errors* errors = checker_.Start();
      CheckRowsKernel<<<Blocks(c.rows * y_ld), 256>>>(groups_, x, w, width, length, d_.As<bf16>(),
                                                      y_ld, addend ? c_.As<bf16>() : nullptr,
                                                      errors);
      CountOtherKernel<<<16, 256>>>(d_.As<uint16_t>() + c.rows * y_ld, kGuard, kPoison16, errors);
      checker_.Finish(what, kTolerance);
    };
    rows(c.n, c.k, 0, false, "forward");
    rows(c.k, c.n, c.extra, c.one, "dgrad");

    const int64_t P = (c.rows + int64_t{c.groups} * 127) / 128 * 128;
    for (const bool accumulate : {false, true}) {
      const std::string what = c.what + " mxfp8 wgrad beta " + std::to_string(accumulate);
      const Mx dy = Matrix(a_, a_scales_, c.n, c.n, P), x = Matrix(b_, b_scales_, c.k, c.k, P);
      PadColumnsKernel<<<Blocks(c.n * P), 256>>>(a_.As<uint8_t>(), static_cast<int>(c.n), P,
                                                 groups_.offsets, c.groups);
      PadColumnsKernel<<<Blocks(c.k * P), 256>>>(b_.As<uint8_t>(), static_cast<int>(c.k), P,
                                                 groups_.offsets, c.groups);
      BENCH_CHECK(MxColumnScalesToTiles(dy.scales, dy.scales_ld, c.n, c.rows, Offsets(c), c.groups,
                                        a_tiles_.As<uint8_t>(), nullptr));
      BENCH_CHECK(MxColumnScalesToTiles(x.scales, x.scales_ld, c.k, c.rows, Offsets(c), c.groups,
                                        b_tiles_.As<uint8_t>(), nullptr));
      const Mxfp8Weight problem{.n = c.n,
                                .k = c.k,
                                .padded = P,
                                .dy = {dy.codes, a_tiles_.As<uint8_t>()},
                                .x = {x.codes, b_tiles_.As<uint8_t>()},
                                .dw = d_.As<float>()};
      WeightCase<float>(c, dy, x, true, accumulate, what, [&] {
        return GroupedGemmMxfp8WeightLt(Resources(), problem, c.rows, Offsets(c), c.groups,
                                        accumulate ? 1.0f : 0.0f, nullptr);
      });
    }
  }

  template <class T, class Matrix, class Multiply>
  void WeightCase(const Case& c, const Matrix& dy, const Matrix& x, bool aligned, bool accumulate,
                  const std::string& what, Multiply&& multiply) {
    const int64_t count = c.groups * c.n * c.k;
    Poison(d_);
    if (accumulate) {
      FillNormal(c_.As<float>(), count, ++seed_, 8.0f);
      BENCH_CHECK(cudaMemcpy(d_.As<void>(), c_.As<void>(), count * sizeof(float),
                             cudaMemcpyDeviceToDevice));
    }
    if (!Done(multiply(), what)) return;
    Errors* errors = checker_.Start();
    CheckWeightKernel<<<Blocks(count), 256>>>(groups_, dy, x, c.n, c.k, aligned, d_.As<T>(),
                                              accumulate ? c_.As<float>() : nullptr, errors);
    CountOtherKernel<<<16, 256>>>(d_.As<uint16_t>() + count * sizeof(T) / 2, kGuard, kPoison16,
                                  errors);
    checker_.Finish(what, kTolerance);
  }

  void Bf16Case(const Case& c) {
    const int64_t used = c.offsets[c.groups];
    const GroupedGemmShape shape{c.rows, c.groups, static_cast<int>(c.n), static_cast<int>(c.k)};
    Poison(a_), Poison(b_);
    bf16 *const x = a_.As<bf16>(), *const dy = b_.As<bf16>(), *const w = w_.As<bf16>();
    FillNormal(x, used * c.k, ++seed_, 1.0f);
    FillNormal(dy, used * c.n, ++seed_, 1.0f);
    FillNormal(w, c.groups * c.n * c.k, ++seed_, 1.0f);
    const auto rows = [&](const Bf& in, const Bf& weight, int64_t width, int64_t length,
                          const char* op, auto&& multiply) {
      const std::string what = c.what + " bf16 " + op;
      Poison(d_);
      if (!Done(multiply(), what)) return;
      Errors* errors = checker_.Start();
      CheckRowsKernel<<<Blocks(c.rows * width), 256>>>(groups_, in, weight, width, length,
                                                       d_.As<bf16>(), width,
                                                       static_cast<const bf16*>(nullptr), errors);
      CountOtherKernel<<<16, 256>>>(d_.As<uint16_t>() + c.rows * width, kGuard, kPoison16, errors);
      checker_.Finish(what, kTolerance);
    };
    rows(Bf{x, c.k, 1}, Bf{w, c.k, 1}, c.n, c.k, "forward", [&] {
      return GroupedGemmForwardLt(Resources(), shape, x, w, groups_.offsets, d_.As<void>(),
                                  nullptr);
    });
    rows(Bf{dy, c.n, 1}, Bf{w, 1, c.k}, c.k, c.n, "dgrad", [&] {
      return GroupedGemmDgradLt(Resources(), shape, dy, w, groups_.offsets, d_.As<void>(), nullptr);
    });
    const Bf dy_t{dy, 1, c.n}, x_t{x, 1, c.k};
    for (const bool accumulate : {false, true}) {
      WeightCase<float>(c, dy_t, x_t, false, accumulate,
                        c.what + " bf16 wgrad beta " + std::to_string(accumulate), [&] {
                          return GroupedGemmWgradLt(Resources(), shape, dy, x, groups_.offsets,
                                                    accumulate, GroupedGemmOutput::kFp32,
                                                    d_.As<void>(), nullptr);
                        });
    }
    WeightCase<bf16>(c, dy_t, x_t, false, false, c.what + " bf16 wgrad into BF16", [&] {
      return GroupedGemmWgradLt(Resources(), shape, dy, x, groups_.offsets, false,
                                GroupedGemmOutput::kBf16, d_.As<void>(), nullptr);
    });
  }

  GroupedGemmLtResources Resources() {
#ifndef YM_LT_STAND_IN
    if (handle_ == nullptr) BENCH_CHECK(cublasLtCreate(&handle_));
#endif
    return {.handle = handle_,
            .arrays = arrays_.As<void>(),
            .workspace = workspace_.As<void>(),
            .workspace_bytes = workspace_.bytes()};
  }

  cublasLtHandle_t handle_ = nullptr;
  uint64_t seed_ = 0;
  int unsupported_ = 0;
  Groups groups_ = {};
  Checker checker_;
  DeviceMemory a_{32 << 20}, a_scales_{4 << 20}, a_tiles_{4 << 20}, b_{32 << 20},
      b_scales_{4 << 20}, b_tiles_{4 << 20}, w_{32 << 20}, c_{64 << 20}, d_{64 << 20};
  DeviceMemory offsets_{513 * 8}, arrays_{1 << 20}, workspace_{60 << 20};
};

}  // namespace

}  // namespace yardmaster::bench

int main(int argc, char** argv) {
  using namespace yardmaster::bench;
  const int cases = argc > 1 ? std::atoi(argv[1]) : 40;
  std::printf("cuBLASLt %zu, headers %d\n", cublasLtGetVersion(), CUBLAS_VERSION);
  Program program;
  std::mt19937 random(1);
  for (int i = 0; i < cases; ++i) program.Run(RandomCase(i, &random));
  return program.Report();
}
