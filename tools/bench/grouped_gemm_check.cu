// File: tools/bench/grouped_gemm_check.cu
//
// Correctness of the grouped GEMM on a GPU, against sums in double over the same BF16 inputs.
//   random cases   ragged counts (0, 1, 63, 64, 65, primes, hundreds), odd sizes, every op, output
//                  type and beta. Inputs beyond the last row are NaN; outputs are poisoned before;
//                  what must not be written is compared bit by bit.
//                  FP32 weight gradients with beta 0 also with their squares: the same weights'
//                  bits, and sums of squares that are poisoned before.
//   repeats        the same launch many times: the same bits.
//   large          512K rows, DeepSeek-V3 width: sampled entries (64-bit offsets).
//
//   grouped_gemm_check [cases = 500] [repeats = 1000] [large = 1]
// Exit status 1 where anything is wrong.
#include <random>
#include <string>

#include "kernels/grouped_gemm/grouped_gemm.h"
#include "tools/bench/gpu_check.cuh"

namespace yardmaster::bench {

namespace {

using bf16 = __nv_bfloat16;

constexpr double kTolerance = 3e-3;         // relative L2, BF16 output; FP32 output is held to 1e-5

template <typename T>
__device__ double Value(const T* p) {
  return static_cast<double>(static_cast<float>(*p));
}

__device__ int FindExpert(const int64_t* offsets, int experts, int64_t row) {
  int e = 0;
  while (e < experts && row >= offsets[e + 1]) ++e;
  return e;
}

// forward: y[r, n] against x, w; dgrad with `transposed`: dx[r, k] against dy, w. One thread per
// sampled output.
__global__ void CheckRowsKernel(const bf16* in, const bf16* w, const int64_t* offsets, int experts,
                                const bf16* out, int64_t rows, int in_width, int out_width,
                                bool transposed, int64_t samples, uint64_t seed, Errors* errors) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t total = rows * out_width;
  if (i >= (samples > 0 ? samples : total)) return;
  const int64_t at = samples > 0 ? static_cast<int64_t>(Mix(Mix(seed) ^ i) % total) : i;
  const int64_t row = at / out_width;
  const int column = at % out_width;
  const int e = FindExpert(offsets, experts, row);
  if (e == experts) {
    if (__bfloat16_as_ushort(out[at]) != kPoison16) atomicAdd(&errors->changed, 1ull);
    return;
  }
  const bf16* we = w + int64_t{e} * in_width * out_width;
  double sum = 0.0;
  for (int j = 0; j < in_width; ++j) {
    sum +=
        Value(in + row * in_width + j) *
        Value(we + (transposed ? int64_t{j} * out_width + column : int64_t{column} * in_width + j));
  }
  const double difference = Value(out + at) - sum;
  atomicAdd(&errors->difference2, difference * difference);
  atomicAdd(&errors->reference2, sum * sum);
}

// dw[l, n, k] against dy, x and what was there before.
template <typename T>
__global__ void CheckWgradKernel(const bf16* dy, const bf16* x, const int64_t* offsets, int experts,
                                 const T* out, const T* before, int n_width, int k_width,
                                 Errors* errors) {
  const int64_t at = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (at >= int64_t{experts} * n_width * k_width) return;
  const int e = at / (int64_t{n_width} * k_width);
  const int n = at / k_width % n_width;
  const int k = at % k_width;
  double sum = before != nullptr ? Value(before + at) : 0.0;
  for (int64_t row = offsets[e]; row < offsets[e + 1]; ++row)
    sum += Value(dy + row * n_width + n) * Value(x + row * k_width + k);
  const double difference = Value(out + at) - sum;
  atomicAdd(&errors->difference2, difference * difference);
  atomicAdd(&errors->reference2, sum * sum);
}

struct Buffers {
  DeviceMemory x{64 << 20}, dy{64 << 20}, w{128 << 20}, out{64 << 20}, dw{256 << 20},
      before{256 << 20}, squares{8 << 20}, offsets{513 * 8};
};

// The weight gradient that lies in `dw` once more, with sums of squares.
void CheckSquares(const std::string& what, const GroupedGemmShape& shape,
                  GroupedGemmOptions options, const Buffers& b, Checker* checker) {
  const auto launch = [&](float* dw, double* squares) {
    options.squares = squares;
    return GroupedGemmWgradSm90(shape, b.dy.As<void>(), b.x.As<void>(), b.offsets.As<int64_t>(),
                                false, GroupedGemmOutput::kFp32, dw, options, nullptr);
  };
  CheckSquaresOf("squares of wgrad " + what, {shape.experts, shape.n, shape.k, 256}, b.dw, b.before,
                 b.squares, launch, checker);
}

void CheckCase(int number, std::mt19937* random, const Buffers& b, Checker* checker) {
  const int kSizes[] = {8, 64, 72, 120, 128, 136, 192, 256, 264, 320, 512, 520, 776};
  const int kCounts[] = {0,   0,   1,   2,   15,  16,  17,  31,  63,  64,  65, 97,
                         127, 128, 129, 191, 193, 255, 256, 257, 383, 509, 701};
  const auto pick = [&](const auto& list) {
    return list[(*random)() % (sizeof(list) / sizeof(list[0]))];
  };
  const int experts = 1 + (*random)() % 12;
  const int n = pick(kSizes), k = pick(kSizes);
  std::vector<int64_t> offsets(experts + 1, 0);
  std::string counts;
  for (int e = 0; e < experts; ++e) {
    const int count = pick(kCounts);
    offsets[e + 1] = offsets[e] + count;
    counts += " " + std::to_string(count);
  }
  const int64_t used = offsets[experts];
  const int64_t rows = used + (*random)() % 3 * 77;
  const std::string what = "case " + std::to_string(number) + " n " + std::to_string(n) + " k " +
                           std::to_string(k) + " rows " + std::to_string(rows) + " counts" + counts;
  const GroupedGemmShape shape = {rows, experts, n, k};
  const GroupedGemmOptions options = {static_cast<int>((*random)() % 3 * 16)};
  const int64_t* device_offsets = b.offsets.As<int64_t>();
  BENCH_CHECK(
      cudaMemcpy(b.offsets.As<void>(), offsets.data(), offsets.size() * 8, cudaMemcpyHostToDevice));
  FillNormal(b.x.As<bf16>(), used * k, 3 * number, 1.0f);
  FillNormal(b.dy.As<bf16>(), used * n, 3 * number + 1, 1.0f);
  FillNormal(b.w.As<bf16>(), int64_t{experts} * n * k, 3 * number + 2, 1.0f);
  Fill(b.x.As<uint16_t>() + used * k, (rows - used) * k, kPoison16);
  Fill(b.dy.As<uint16_t>() + used * n, (rows - used) * n, kPoison16);

  for (const bool dgrad : {false, true}) {
    const int in_width = dgrad ? n : k, out_width = dgrad ? k : n;
    Fill(b.out.As<uint16_t>(), rows * out_width + kGuard, kPoison16);
    const bf16* in = dgrad ? b.dy.As<bf16>() : b.x.As<bf16>();
    BENCH_CHECK((dgrad ? GroupedGemmDgradSm90 : GroupedGemmForwardSm90)(
        shape, in, b.w.As<void>(), device_offsets, b.out.As<void>(), options, nullptr));
    Errors* errors = checker->Start();
    if (rows > 0) {
      CheckRowsKernel<<<Blocks(rows * out_width), 256>>>(in, b.w.As<bf16>(), device_offsets,
                                                         experts, b.out.As<bf16>(), rows, in_width,
                                                         out_width, dgrad, 0, 0, errors);
    }
    CountOtherKernel<<<16, 256>>>(b.out.As<uint16_t>() + rows * out_width, kGuard, kPoison16,
                                  errors);
    checker->Finish((dgrad ? "dgrad " : "forward ") + what, kTolerance);
  }
  const int64_t weights = int64_t{experts} * n * k;
  for (const bool fp32 : {false, true}) {
    for (const bool accumulate : {false, true}) {
      const std::string name =
          std::string("wgrad ") + (fp32 ? "fp32" : "bf16") + (accumulate ? " beta 1 " : " beta 0 ");
      if (fp32) {
        Fill(b.dw.As<uint32_t>(), weights + kGuard, kPoison32);
        if (accumulate) FillNormal(b.dw.As<float>(), weights, 5 * number, 4.0f);
      } else {
        Fill(b.dw.As<uint16_t>(), weights + kGuard, kPoison16);
        if (accumulate) FillNormal(b.dw.As<bf16>(), weights, 5 * number, 4.0f);
      }
      BENCH_CHECK(cudaMemcpy(b.before.As<void>(), b.dw.As<void>(), weights * (fp32 ? 4 : 2),
                             cudaMemcpyDeviceToDevice));
      BENCH_CHECK(GroupedGemmWgradSm90(shape, b.dy.As<void>(), b.x.As<void>(), device_offsets,
                                       accumulate,
                                       fp32 ? GroupedGemmOutput::kFp32 : GroupedGemmOutput::kBf16,
                                       b.dw.As<void>(), options, nullptr));
      Errors* errors = checker->Start();
      if (fp32) {
        CheckWgradKernel<<<Blocks(weights), 256>>>(
            b.dy.As<bf16>(), b.x.As<bf16>(), device_offsets, experts, b.dw.As<float>(),
            accumulate ? b.before.As<float>() : nullptr, n, k, errors);
        CountOtherKernel<<<16, 256>>>(b.dw.As<uint32_t>() + weights, kGuard, kPoison32, errors);
      } else {
        CheckWgradKernel<<<Blocks(weights), 256>>>(
            b.dy.As<bf16>(), b.x.As<bf16>(), device_offsets, experts, b.dw.As<bf16>(),
            accumulate ? b.before.As<bf16>() : nullptr, n, k, errors);
        CountOtherKernel<<<16, 256>>>(b.dw.As<uint16_t>() + weights, kGuard, kPoison16, errors);
      }
      checker->Finish(name + what, fp32 ? 1e-5 : kTolerance);
      if (fp32 && !accumulate && GroupedGemmWgradSquares(n, k) > 0)
        CheckSquares(what, shape, options, b, checker);
    }
  }
}

// Every op, again and again on the same input: no bit may differ.
void CheckRepeats(int repeats, const Buffers& b, Checker* checker) {
  const int experts = 6, n = 640, k = 768;
  const std::vector<int64_t> offsets = {0, 333, 333, 1000, 1064, 2111, 4001};
  const GroupedGemmShape shape = {4001, experts, n, k};
  BENCH_CHECK(
      cudaMemcpy(b.offsets.As<void>(), offsets.data(), offsets.size() * 8, cudaMemcpyHostToDevice));
  FillNormal(b.x.As<bf16>(), 4001 * k, 11, 1.0f);
  FillNormal(b.dy.As<bf16>(), 4001 * n, 12, 1.0f);
  FillNormal(b.w.As<bf16>(), int64_t{experts} * n * k, 13, 1.0f);
  const size_t weight_words = size_t{experts} * n * k;
  const int64_t* o = b.offsets.As<int64_t>();
  // 0 forward, 1 dgrad; wgrad: 2 FP32, 3 FP32 beta 1, 4 BF16, 5 BF16 beta 1, 6 FP32 with squares
  for (int op = 0; op < 7; ++op) {
    const bool fp32 = op < 4 || op == 6, accumulate = op == 3 || op == 5;
    const size_t square_words = size_t{2} * experts * (n / 128) * GroupedGemmWgradSquares(n, k);
    const DeviceMemory first_squares(square_words * 4);
    const size_t words = op == 0   ? size_t{4001} * n / 2
                         : op == 1 ? size_t{4001} * k / 2
                                   : (fp32 ? weight_words : weight_words / 2);
    Errors* errors = checker->Start();
    for (int i = 0; i <= repeats; ++i) {
      DeviceMemory const& to = i == 0 ? b.before : b.dw;
      if (op == 0)
        BENCH_CHECK(GroupedGemmForwardSm90(shape, b.x.As<void>(), b.w.As<void>(), o, to.As<void>(),
                                           {}, nullptr));
      if (op == 1)
        BENCH_CHECK(GroupedGemmDgradSm90(shape, b.dy.As<void>(), b.w.As<void>(), o, to.As<void>(),
                                         {}, nullptr));
      if (op >= 2) {
        GroupedGemmOptions wgrad = {i % 3 * 16};  // nor may the number of multiprocessors matter
        if (op == 6) wgrad.squares = (i == 0 ? first_squares : b.squares).As<double>();
        if (accumulate && fp32) FillNormal(to.As<float>(), weight_words, 14, 1.0f);
        if (accumulate && !fp32) FillNormal(to.As<bf16>(), weight_words, 14, 1.0f);
        BENCH_CHECK(GroupedGemmWgradSm90(shape, b.dy.As<void>(), b.x.As<void>(), o, accumulate,
                                         fp32 ? GroupedGemmOutput::kFp32 : GroupedGemmOutput::kBf16,
                                         to.As<void>(), wgrad, nullptr));
      }
      if (i > 0 && op == 6)
        CompareKernel<<<264, 256>>>(first_squares.As<uint32_t>(), b.squares.As<uint32_t>(),
                                    square_words, errors);
      if (i > 0)
        CompareKernel<<<264, 256>>>(b.before.As<uint32_t>(), b.dw.As<uint32_t>(), words, errors);
    }
    checker->Finish("repeats of op " + std::to_string(op), 1.0);
  }
}

void CheckLarge(Checker* checker) {
  const int64_t rows = 512 * 1024 + 3;
  const int experts = 5, n = 4096, k = 7168;
  DeviceMemory x(rows * k * 2), y(rows * n * 2), w(size_t{experts} * n * k * 2),
      offsets(8 * (experts + 1));
  const std::vector<int64_t> starts = {0, 100003, 100003, 400000, 524200, rows};
  BENCH_CHECK(
      cudaMemcpy(offsets.As<void>(), starts.data(), starts.size() * 8, cudaMemcpyHostToDevice));
  FillNormal(x.As<bf16>(), rows * k, 21, 1.0f);
  FillNormal(w.As<bf16>(), size_t{experts} * n * k, 22, 1.0f);
  Fill(y.As<uint16_t>(), rows * n, kPoison16);
  BENCH_CHECK(GroupedGemmForwardSm90({rows, experts, n, k}, x.As<void>(), w.As<void>(),
                                     offsets.As<int64_t>(), y.As<void>(), {}, nullptr));
  Errors* errors = checker->Start();
  constexpr int64_t kSamples = 1 << 18;
  CheckRowsKernel<<<Blocks(kSamples), 256>>>(x.As<bf16>(), w.As<bf16>(), offsets.As<int64_t>(),
                                             experts, y.As<bf16>(), rows, k, n, false, kSamples, 23,
                                             errors);
  checker->Finish("forward, 512K rows", kTolerance);
  Fill(x.As<uint16_t>(), rows * k, kPoison16);
  BENCH_CHECK(GroupedGemmDgradSm90({rows, experts, n, k}, y.As<void>(), w.As<void>(),
                                   offsets.As<int64_t>(), x.As<void>(), {}, nullptr));
  errors = checker->Start();
  CheckRowsKernel<<<Blocks(kSamples), 256>>>(y.As<bf16>(), w.As<bf16>(), offsets.As<int64_t>(),
                                             experts, x.As<bf16>(), rows, n, k, true, kSamples, 24,
                                             errors);
  checker->Finish("dgrad, 512K rows", kTolerance);
}

}  // namespace

int Main(int argc, char** argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 500;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 1000;
  const bool large = argc > 3 ? std::atoi(argv[3]) != 0 : true;
  Checker checker;
  {
    Buffers buffers;
    std::mt19937 random(20261129);
    for (int i = 0; i < cases && checker.failures() < 20; ++i)
      CheckCase(i, &random, buffers, &checker);
    if (repeats > 0) CheckRepeats(repeats, buffers, &checker);
  }
  if (large) CheckLarge(&checker);
  std::printf("grouped_gemm_check: %d checks, %d wrong; worst error %.2f of its limit\n",
              checker.checks(), checker.failures(), checker.worst());
  return checker.failures() == 0 ? 0 : 1;
}

}  // namespace yardmaster::bench

int main(int argc, char** argv) { return yardmaster::bench::Main(argc, argv); }
