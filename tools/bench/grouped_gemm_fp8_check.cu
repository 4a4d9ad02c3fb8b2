// File: tools/bench/grouped_gemm_fp8_check.cu
//
// Correctness of the FP8 grouped GEMM on a GPU, against sums in double over the same codes and
// scales.
//   random cases   ragged counts (0, 1, primes, hundreds), widths that are multiples of 16, both
//                  kinds of scales, with and without offsets, addend, strided output, both betas,
//                  multiprocessors left free, both forms of the weight gradient. Codes and scales beyond the last row are NaN; outputs
//                  are poisoned before; what must not be written is compared bit by bit. Weight
//                  gradients with beta 0 also with their squares: the same weights' bits.
//   special        a NaN scale and NaN codes reach their outputs and no others
//   repeats        the same launch many times, and replayed from a graph: the same bits.
//
//   grouped_gemm_fp8_check [cases = 200] [repeats = 200]
// Exit status 1 where anything is wrong. Limit: relative L2 1e-3; of BF16 outputs what exceeds half
// a unit in the last place counts.
#include <random>
#include <string>

#include "kernels/grouped_gemm_fp8/grouped_gemm_fp8.h"
#include "tools/bench/fp8_data.cuh"
#include "tools/bench/gpu_check.cuh"

namespace yardmaster::bench {

namespace {

using bf16 = __nv_bfloat16;

constexpr double kTolerance = 1e-3;

__device__ int FindGroup(const int64_t* offsets, int groups, int64_t row) {
  int e = 0;
  while (e < groups && row >= offsets[e + 1]) ++e;
  return e;
}

// One thread for each y[row, column], column < y_ld: beyond n nothing may have been written.
__global__ void CheckRowsKernel(Fp8RowsArgs a, const int64_t* offsets, const bf16* c,
                                Errors* errors) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= a.rows * a.y_ld) return;
  const int64_t row = i / a.y_ld;
  const int column = i % a.y_ld;
  const bf16* out = static_cast<const bf16*>(a.y) + i;
  const int e = FindGroup(offsets, a.groups, row);
  if (e == a.groups || column >= a.n) {
    if (__bfloat16_as_ushort(*out) != kPoison16) atomicAdd(&errors->changed, 1ull);
    return;
  }
  const int runs = (a.k + 127) / 128, tiles = (a.n + 127) / 128;
  const int64_t scales_ld = (a.rows + 3) / 4 * 4;
  const uint8_t* w = a.w + (int64_t{e} * a.n + column) * a.k;
  double sum = c == nullptr ? 0.0 : static_cast<double>(__bfloat162float(c[row * a.c_ld + column]));
  for (int run = 0; run < runs; ++run) {
    double part = 0.0;
    for (int j = 128 * run; j < min(a.k, 128 * run + 128); ++j)
      part += CodeValue(a.x[row * a.k + j]) * CodeValue(w[j]);
    sum += part * a.x_scales[run * scales_ld + row] *
           a.w_scales[(int64_t{e} * tiles + column / 128) * runs + run];
  }
  const double value = static_cast<double>(__bfloat162float(*out));
  if (isnan(value)) atomicAdd(&errors->changed, 1ull);
  const double half_unit = value == 0.0 ? 0.0 : ldexp(1.0, ilogb(value) - 8);
  const double difference = fmax(0.0, fabs(value - sum) - half_unit);
  atomicAdd(&errors->difference2, difference * difference);
  atomicAdd(&errors->reference2, sum * sum);
}

__global__ void CheckWgradKernel(Fp8WgradArgs a, const int64_t* offsets, const float* before,
                                 Errors* errors) {
  const int64_t at = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (at >= int64_t{a.groups} * a.n * a.k) return;
  const int e = at / (int64_t{a.n} * a.k), n = at / a.k % a.n, k = at % a.k;
  const int64_t n_ld = (a.n + 3) / 4 * 4, k_ld = (a.k + 3) / 4 * 4;
  int64_t begin = 0;
  for (int i = 0; i < e; ++i) begin += (offsets[i + 1] - offsets[i] + 127) / 128;
  const int64_t end = begin + (offsets[e + 1] - offsets[e] + 127) / 128;
  double sum = before != nullptr ? before[at] : 0.0;
  for (int64_t run = begin; run < end; ++run) {
    double part = 0.0;
    for (int64_t j = 128 * run; j < 128 * run + 128; ++j)
      part += CodeValue(a.dy[n * a.padded + j]) * CodeValue(a.x[k * a.padded + j]);
    sum += part * a.dy_scales[run * n_ld + n] * a.x_scales[run * k_ld + k];
  }
  if (isnan(a.dw[at])) atomicAdd(&errors->changed, 1ull);
  const double difference = a.dw[at] - sum;
  atomicAdd(&errors->difference2, difference * difference);
  atomicAdd(&errors->reference2, sum * sum);
}

struct Buffers {
  DeviceMemory x{32 << 20}, x_scales{4 << 20}, w{32 << 20}, w_scales{1 << 20}, y{64 << 20},
      c{64 << 20};
  DeviceMemory dy{32 << 20}, dy_scales{4 << 20}, dw{128 << 20}, before{128 << 20},
      squares{8 << 20}, offsets{513 * 8};
};

struct Case {
  int groups, n, k;
  std::vector<int64_t> offsets;
  int64_t rows;
  bool power_of_two;
  std::string what;
};

Case RandomCase(int number, std::mt19937* random) {
  const int kSizes[] = {16,  32,  48,  112, 128, 144, 240, 256,
                        272, 384, 400, 512, 528, 640, 784, 1024};
  const int kCounts[] = {0,   0,   1,   2,   3,   7,   16,  31,  63,  64,  65,  97, 127,
                         128, 129, 191, 193, 255, 256, 257, 311, 383, 385, 509, 701};
  const auto pick = [&](const auto& list) {
    return list[(*random)() % (sizeof(list) / sizeof(list[0]))];
  };
  Case c;
  c.groups = 1 + (*random)() % 12;
  c.n = pick(kSizes), c.k = pick(kSizes);
  c.offsets.assign(c.groups + 1, 0);
  std::string counts;
  for (int e = 0; e < c.groups; ++e) {
    const int count = pick(kCounts);
    c.offsets[e + 1] = c.offsets[e] + count;
    counts += " " + std::to_string(count);
  }
  c.rows = c.offsets[c.groups] + (*random)() % 3 * 77;
  c.power_of_two = (*random)() % 2;
  c.what = "case " + std::to_string(number) + " n " + std::to_string(c.n) + " k " +
           std::to_string(c.k) + " rows " + std::to_string(c.rows) + " counts" + counts;
  return c;
}

void UploadOffsets(const Buffers& b, const std::vector<int64_t>& offsets) {
  BENCH_CHECK(
      cudaMemcpy(b.offsets.As<void>(), offsets.data(), offsets.size() * 8, cudaMemcpyHostToDevice));
}

Fp8RowsArgs RowsOperands(const Buffers& b, const Case& c, uint64_t seed) {
  const int runs = (c.k + 127) / 128, tiles = (c.n + 127) / 128;
  const int64_t used = c.offsets[c.groups], ld = RoundUp(c.rows, 4);
  FillCodes(b.x.As<uint8_t>(), used * c.k, seed);
  Fill(b.x.As<uint8_t>() + used * c.k, (c.rows - used) * c.k, kNanCode);
  FillCodes(b.w.As<uint8_t>(), int64_t{c.groups} * c.n * c.k, seed + 1);
  Fill(b.x_scales.As<uint32_t>(), runs * ld, kPoison32);
  for (int run = 0; run < runs; ++run)
    FillScales(b.x_scales.As<float>() + run * ld, used, seed + 100 + run, c.power_of_two, 0x1p-7f);
  FillScales(b.w_scales.As<float>(), int64_t{c.groups} * tiles * runs, seed + 2, c.power_of_two,
             0x1p-9f);
  Fp8RowsArgs a;
  a.rows = c.rows, a.groups = c.groups, a.n = c.n, a.k = c.k;
  a.x = b.x.As<uint8_t>(), a.x_scales = b.x_scales.As<float>();
  a.w = b.w.As<uint8_t>(), a.w_scales = b.w_scales.As<float>();
  a.offsets = b.offsets.As<int64_t>(), a.y = b.y.As<void>(), a.y_ld = c.n;
  return a;
}

Fp8WgradArgs WgradOperands(const Buffers& b, const Case& c, uint64_t seed) {
  const int64_t padded = (c.rows + c.groups * 127) / 128 * 128;
  int64_t used = 0;
  for (int e = 0; e < c.groups; ++e) used += (c.offsets[e + 1] - c.offsets[e] + 127) / 128;
  Fp8WgradArgs a;
  a.rows = c.rows, a.padded = padded, a.groups = c.groups, a.n = c.n, a.k = c.k;
  a.dy = b.dy.As<uint8_t>(), a.dy_scales = b.dy_scales.As<float>();
  a.x = b.x.As<uint8_t>(), a.x_scales = b.x_scales.As<float>();
  a.offsets = b.offsets.As<int64_t>(), a.dw = b.dw.As<float>();
  for (const bool dy : {true, false}) {
    const int width = dy ? c.n : c.k;
    const DeviceMemory &codes = dy ? b.dy : b.x, &scales = dy ? b.dy_scales : b.x_scales;
    const int64_t ld = RoundUp(width, 4);
    FillCodes(codes.As<uint8_t>(), width * padded, seed + dy);
    if (padded > 0)
      PadColumnsKernel<<<Blocks(width * padded), 256>>>(codes.As<uint8_t>(), width, padded,
                                                        a.offsets, c.groups);
    Fill(scales.As<uint32_t>(), padded / 128 * ld, kPoison32);
    FillScales(scales.As<float>(), used * ld, seed + 2 + dy, c.power_of_two, 0x1p-8f);
  }
  return a;
}

// The weight gradient that lies in `dw` once more, with sums of squares.
void CheckSquares(const std::string& what, Fp8WgradArgs a, const Fp8Options& options,
                  const Buffers& b, Checker* checker) {
  const auto launch = [&](float* dw, double* squares) {
    a.dw = dw;
    a.squares = squares;
    return GroupedGemmFp8WgradSm90(a, options, nullptr);
  };
  CheckSquaresOf("squares of " + what, {a.groups, a.n, a.k, 128}, b.dw, b.before, b.squares, launch,
                 checker);
}

void CheckCase(int number, std::mt19937* random, const Buffers& b, Checker* checker) {
  Case c = RandomCase(number, random);
  const Fp8Options options = {static_cast<int>((*random)() % 3 * 16)};
  const bool plain = (*random)() % 4 == 0;  // without offsets
  if (plain) {
    c.groups = 1;
    c.offsets = {0, c.rows};
  }
  UploadOffsets(b, c.offsets);
  const int64_t* device_offsets = b.offsets.As<int64_t>();
  for (const int variant : {0, 1, 2}) {  // plain; strided with addend; addend in place
    Fp8RowsArgs a = RowsOperands(b, c, 10 * number + variant);
    if (plain) a.offsets = nullptr;
    if (variant == 1) a.y_ld = c.n + 8 * (1 + (*random)() % 4);
    Fill(b.y.As<uint16_t>(), c.rows * a.y_ld + kGuard, kPoison16);
    if (variant > 0) {
      a.c_ld = variant == 1 ? c.n + 2 : c.n;
      FillNormal(b.c.As<bf16>(), c.rows * a.c_ld, 10 * number + 5, 2.0f);
      a.c = b.c.As<void>();
      if (variant == 2) {
        BENCH_CHECK(cudaMemcpy(b.y.As<void>(), b.c.As<void>(), c.offsets[c.groups] * c.n * 2,
                               cudaMemcpyDeviceToDevice));
        a.c = a.y;
      }
    }
    BENCH_CHECK(GroupedGemmFp8RowsSm90(a, options, nullptr));
    Errors* errors = checker->Start();
    if (c.rows > 0) {
      CheckRowsKernel<<<Blocks(c.rows * a.y_ld), 256>>>(a, device_offsets,
                                                        variant ? b.c.As<bf16>() : nullptr, errors);
    }
    CountOtherKernel<<<16, 256>>>(b.y.As<uint16_t>() + c.rows * a.y_ld, kGuard, kPoison16, errors);
    checker->Finish("rows, variant " + std::to_string(variant) + (plain ? " plain " : " ") +
                    c.what,
                    kTolerance);
  }
  const int64_t weights = int64_t{c.groups} * c.n * c.k;
  for (int variant = 0; variant < 4; ++variant) {
    const bool accumulate = variant % 2 == 1;
    Fp8WgradArgs a = WgradOperands(b, c, 10 * number + 7);
    if (plain) a.offsets = nullptr;
    a.accumulate = accumulate;
    Fill(b.dw.As<uint32_t>(), weights + kGuard, kPoison32);
    if (accumulate) FillNormal(b.dw.As<float>(), weights, 10 * number + 9, 4.0f);
    BENCH_CHECK(
        cudaMemcpy(b.before.As<void>(), b.dw.As<void>(), weights * 4, cudaMemcpyDeviceToDevice));
    Fp8Options form = options;
    form.wgrad_warpgroups = 2 + variant / 2;
    BENCH_CHECK(GroupedGemmFp8WgradSm90(a, form, nullptr));
    Errors* errors = checker->Start();
    CheckWgradKernel<<<Blocks(weights), 256>>>(a, device_offsets,
                                               accumulate ? b.before.As<float>() : nullptr, errors);
    CountOtherKernel<<<16, 256>>>(b.dw.As<uint32_t>() + weights, kGuard, kPoison32, errors);
    const std::string what = std::string("wgrad ") + (accumulate ? "beta 1, " : "beta 0, ") +
                             std::to_string(form.wgrad_warpgroups) + " warpgroups, " + c.what;
    checker->Finish(what, kTolerance);
    if (!accumulate && GroupedGemmFp8WgradSquares(c.n, c.k) > 0)
      CheckSquares(what, a, form, b, checker);
  }
}

Case FixedCase() {
  return {6, 528, 784, {0, 333, 333, 1000, 1064, 2111, 4001}, 4001, false, "fixed"};
}

// NaN in one run of x's row 340 (scale and codes), and of dy's output row 5: counted.
__global__ void CountNanKernel(const bf16* y, const float* dw, int n, int k, int64_t rows,
                               int64_t weights, Errors* errors) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (y != nullptr && i < rows * n && isnan(__bfloat162float(y[i])) != (i / n == 340))
    atomicAdd(&errors->changed, 1ull);
  // Run 5 of the aligned rows is group 2's (its blocks 3 to 8).
  if (dw != nullptr && i < weights && isnan(dw[i]) != (i / k == int64_t{2} * n + 5))
    atomicAdd(&errors->changed, 1ull);
}

void CheckSpecial(const Buffers& b, Checker* checker) {
  const Case c = FixedCase();
  UploadOffsets(b, c.offsets);
  const int64_t weights = int64_t{c.groups} * c.n * c.k;
  const float nan = std::nanf("");
  const Fp8RowsArgs rows = RowsOperands(b, c, 51);
  Fill(b.x.As<uint8_t>() + 340 * c.k + 128, 128, kNanCode);
  BENCH_CHECK(cudaMemcpy(b.x_scales.As<float>() + RoundUp(c.rows, 4) + 340, &nan, 4,
                         cudaMemcpyHostToDevice));
  BENCH_CHECK(GroupedGemmFp8RowsSm90(rows, {}, nullptr));
  Errors* errors = checker->Start();
  CountNanKernel<<<Blocks(c.rows * c.n), 256>>>(b.y.As<bf16>(), nullptr, c.n, c.k, c.rows, 0,
                                                errors);
  checker->Finish("NaN through rows", kTolerance);
  const Fp8WgradArgs wgrad = WgradOperands(b, c, 52);
  Fill(b.dy.As<uint8_t>() + 5 * wgrad.padded + 128 * 5, 128, kNanCode);
  BENCH_CHECK(cudaMemcpy(b.dy_scales.As<float>() + 5 * RoundUp(c.n, 4) + 5, &nan, 4,
                         cudaMemcpyHostToDevice));
  for (const int form : {2, 3}) {
    BENCH_CHECK(GroupedGemmFp8WgradSm90(wgrad, {.wgrad_warpgroups = form}, nullptr));
    errors = checker->Start();
    CountNanKernel<<<Blocks(weights), 256>>>(nullptr, b.dw.As<float>(), c.n, c.k, 0, weights,
                                             errors);
    checker->Finish("NaN through wgrad", kTolerance);
  }
}

// Every op, again and again on the same input, half of them from a graph: no bit may differ.
void CheckRepeats(int repeats, const Buffers& b, Checker* checker) {
  const Case c = FixedCase();
  UploadOffsets(b, c.offsets);
  const size_t weights = size_t(c.groups) * c.n * c.k;
  cudaStream_t stream;
  BENCH_CHECK(cudaStreamCreate(&stream));
  for (int op = 0; op < 5; ++op) {  // rows; wgrad, wgrad beta 1, by two warpgroups and three
    Fp8RowsArgs rows = RowsOperands(b, c, 61);
    Fp8WgradArgs wgrad;
    if (op > 0) wgrad = WgradOperands(b, c, 62);
    wgrad.accumulate = op % 2 == 0;
    const size_t words = op == 0 ? size_t(c.rows) * c.n / 2 : weights;
    const DeviceMemory& out = op == 0 ? b.y : b.dw;
    const auto launch = [&] {
      BENCH_CHECK(op == 0 ? GroupedGemmFp8RowsSm90(rows, {}, stream)
                          : GroupedGemmFp8WgradSm90(
                                wgrad, {.wgrad_warpgroups = 2 + (op - 1) / 2}, stream));
    };
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    BENCH_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch();
    BENCH_CHECK(cudaStreamEndCapture(stream, &graph));
    BENCH_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    Errors* errors = checker->Start();
    for (int i = 0; i <= repeats; ++i) {
      if (op > 0 && wgrad.accumulate) FillNormal(out.As<float>(), weights, 63, 1.0f);
      BENCH_CHECK(cudaDeviceSynchronize());
      if (i % 2) {
        BENCH_CHECK(cudaGraphLaunch(exec, stream));
      } else {
        launch();
      }
      BENCH_CHECK(cudaStreamSynchronize(stream));
      if (i == 0) {
        BENCH_CHECK(
            cudaMemcpy(b.before.As<void>(), out.As<void>(), words * 4, cudaMemcpyDeviceToDevice));
      } else {
        CompareKernel<<<264, 256>>>(b.before.As<uint32_t>(), out.As<uint32_t>(), words, errors);
      }
    }
    checker->Finish("repeats of op " + std::to_string(op), kTolerance);
    BENCH_CHECK(cudaGraphExecDestroy(exec));
    BENCH_CHECK(cudaGraphDestroy(graph));
  }
  BENCH_CHECK(cudaStreamDestroy(stream));
}

int Main(int argc, char** argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 200;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 200;
  Checker checker;
  const Buffers buffers;
  std::mt19937 random(20261129);
  for (int i = 0; i < cases && checker.failures() < 30; ++i)
    CheckCase(i, &random, buffers, &checker);
  CheckSpecial(buffers, &checker);
  if (repeats > 0) CheckRepeats(repeats, buffers, &checker);
  std::printf("grouped_gemm_fp8_check: %d checks, %d wrong; worst relative L2 %.2g\n",
              checker.checks(), checker.failures(), checker.worst() * kTolerance);
  return checker.failures() == 0 ? 0 : 1;
}

}  // namespace

}  // namespace yardmaster::bench

int main(int argc, char** argv) { return yardmaster::bench::Main(argc, argv); }
