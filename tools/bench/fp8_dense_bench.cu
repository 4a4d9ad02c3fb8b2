// File: tools/bench/fp8_dense_bench.cu
//
// Dense products of block-scaled E4M3, two ways: our grouped kernel with one group, and cuBLASLt's
// block scaling (compute capability 9.0: VEC128_32F x BLK128x128_32F forward, VEC128_32F twice for
// weight gradients), with BF16 cuBLASLt beside both. Shapes: the dense products of DeepSeek-V3.
// First, on one small shape, which layout of the 128x128 scales cuBLASLt reads.
//
//   fp8_dense_bench [rows = 8192] [pairs = 7]
#include <cmath>
#include <string>

#include "kernels/grouped_gemm_fp8/grouped_gemm_fp8.h"
#include "tools/bench/fp8_data.cuh"

namespace yardmaster::bench {

namespace {

// y[rows, n] = x w^T with VEC128 scales of x and BLK128x128 of w, or (`vectors`) VEC128 of both; D
// in `type`.
class Fp8Lt : public LtProduct {
 public:
  Fp8Lt(cublasLtHandle_t handle, int64_t m, int64_t n, int64_t k, bool vectors, cudaDataType_t type,
        float beta, const DeviceMemory& workspace)
      : LtProduct(handle, true, false, m, n, k, CUDA_R_8F_E4M3, type, beta, workspace) {
    Set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, vectors ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                                   : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
    Set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
    SetScales(workspace.As<void>(), workspace.As<void>());
    usable_ = Choose();
  }

  bool usable() const { return usable_; }

  void Run(const void* a, const float* a_scales, const void* b, const float* b_scales, void* d) {
    SetScales(a_scales, b_scales);
    LtProduct::Run(a, b, d);
  }

 private:
  void SetScales(const void* a, const void* b) {
    Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a);
    Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, b);
  }
  bool usable_ = false;
};

// Relative error of y against a layout of w's scales: element (tile, run) at tile * tile_step + run
// * run_step.
__global__ void CompareKernel(const __nv_bfloat16* y, const uint8_t* x, const float* xs,
                              const uint8_t* w, const float* ws, int rows, int n, int k,
                              int tile_step, int run_step, double* errors) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * n) return;
  const int row = i / n, column = i % n;
  double sum = 0;
  for (int j = 0; j < k; ++j)
    sum += CodeValue(x[int64_t{row} * k + j]) * CodeValue(w[int64_t{column} * k + j]) *
           xs[j / 128 * ((rows + 3) / 4 * 4) + row] *
           ws[column / 128 * tile_step + j / 128 * run_step];
  const double d = static_cast<double>(__bfloat162float(y[i])) - sum;
  atomicAdd(&errors[0], d * d);
  atomicAdd(&errors[1], sum * sum);
}

void FindLayout(cublasLtHandle_t handle, const DeviceMemory& workspace) {
  const int rows = 132, n = 640, k = 2048, runs = 16, tiles = 5;
  DeviceMemory x(rows * k), w(n * k), xs(132 * runs * 4), ws(1 << 16), y(rows * n * 2), errors(16);
  FillCodes(x.As<uint8_t>(), rows * k, 1);
  FillCodes(w.As<uint8_t>(), n * k, 2);
  FillScales(xs.As<float>(), 132 * runs, 3, false, 0x1p-7f);
  FillScales(ws.As<float>(), 1 << 14, 4, false, 0x1p-7f);
  const auto report = [&](const char* what) {
    const struct {
      const char* name;
      int tile_step, run_step;
    } kLayouts[] = {
        {"[N/128, K/128]", runs, 1}, {"[K/128, N/128]", 1, tiles}, {"[K/128, pad4(N/128)]", 1, 8}};
    std::printf("%s:", what);
    for (const auto& layout : kLayouts) {
      double e[2];
      BENCH_CHECK(cudaMemset(errors.As<void>(), 0, 16));
      CompareKernel<<<(rows * n + 255) / 256, 256>>>(
          y.As<__nv_bfloat16>(), x.As<uint8_t>(), xs.As<float>(), w.As<uint8_t>(), ws.As<float>(),
          rows, n, k, layout.tile_step, layout.run_step, errors.As<double>());
      BENCH_CHECK(cudaMemcpy(e, errors.As<void>(), 16, cudaMemcpyDeviceToHost));
      std::printf(" %s %.2g", layout.name, std::sqrt(e[0] / e[1]));
    }
    std::printf("\n");
  };
  for (const auto& [some_rows, some_k] : {std::pair(130, 2048), std::pair(132, 1664)}) {
    const Fp8Lt some(handle, n, some_rows, some_k, false, CUDA_R_16BF, 0, workspace);
    std::printf("%d rows, K %d: cuBLASLt %s\n", some_rows, some_k,
                some.usable() ? "has it" : "does not take it");
  }
  Fp8Lt lt(handle, n, rows, k, false, CUDA_R_16BF, 0, workspace);
  if (lt.usable()) {
    lt.Run(w.As<void>(), ws.As<float>(), x.As<void>(), xs.As<float>(), y.As<void>());
    report("cuBLASLt's 128x128 scales, relative L2");
  } else {
    std::printf("cuBLASLt has no 1Dx2D algorithm here (%d)\n", lt.status());
  }
  Fp8RowsArgs a;
  a.rows = rows, a.n = n, a.k = k, a.x = x.As<uint8_t>(), a.x_scales = xs.As<float>(),
  a.w = w.As<uint8_t>();
  a.w_scales = ws.As<float>(), a.y = y.As<void>(), a.y_ld = n;
  BENCH_CHECK(GroupedGemmFp8RowsSm90(a, {}, nullptr));
  report("ours");
}

struct Shape {
  const char* name;
  int n, k;
};
const Shape kShapes[] = {
    {"q_a", 1536, 7168},         {"q_b", 24576, 1536},      {"kv_a", 576, 7168},
    {"kv_b", 32768, 512},        {"o", 7168, 16384},        {"shared up", 4096, 7168},
    {"shared down", 7168, 2048}, {"dense up", 36864, 7168}, {"dense down", 7168, 18432}};

int Main(int argc, char** argv) {
  const int rows = argc > 1 ? std::atoi(argv[1]) : 8192, pairs = argc > 2 ? std::atoi(argv[2]) : 7;
  cublasLtHandle_t handle;
  BENCH_CHECK(cublasLtCreate(&handle));
  DeviceMemory workspace(64 << 20);
  FindLayout(handle, workspace);
  const size_t most_weights = size_t{36864} * 7168, most_rows = size_t(rows) * 36864;
  DeviceMemory x(most_rows), dy(most_rows), w(most_weights), scales(size_t{64} << 20),
      y(most_rows * 2), dw(most_weights * 4);
  DeviceMemory x16(most_rows * 2), w16(most_weights * 2);
  FillCodes(x.As<uint8_t>(), most_rows, 1);
  FillCodes(dy.As<uint8_t>(), most_rows, 2);
  FillCodes(w.As<uint8_t>(), most_weights, 3);
  FillScales(scales.As<float>(), scales.bytes() / 4, 4, true, 0x1p-9f);
  FillNormal(x16.As<__nv_bfloat16>(), most_rows, 5, 1.0f);
  FillNormal(w16.As<__nv_bfloat16>(), most_weights, 6, 0.02f);
  Fill(dw.As<float>(), most_weights, 0.0f);
  bool warm = false;
  std::printf("%-12s %-8s %6s %6s  TFLOP/s: %6s %6s %6s  ours/cuBLASLt FP8 %6s\n", "shape", "op",
              "n", "k", "BF16", "Lt FP8", "ours", "");
  for (const Shape& s : kShapes) {
    for (const int op : {0, 1, 2}) {  // forward, input gradient, weight gradient
      const int n = op == 1 ? s.k : s.n, k = op == 1 ? s.n : s.k;
      Fp8RowsArgs r;
      r.rows = rows, r.n = n, r.k = k, r.x = x.As<uint8_t>(), r.x_scales = scales.As<float>(),
      r.w = w.As<uint8_t>();
      r.w_scales = scales.As<float>(), r.y = y.As<void>(), r.y_ld = n;
      Fp8WgradArgs g;
      g.rows = rows, g.padded = RoundUp(rows, 128), g.n = n, g.k = k, g.dy = dy.As<uint8_t>(),
      g.x = x.As<uint8_t>();
      g.dy_scales = g.x_scales = scales.As<float>(), g.accumulate = true, g.dw = dw.As<float>();
      const auto ours = [&] {
        BENCH_CHECK(op < 2 ? GroupedGemmFp8RowsSm90(r, {}, nullptr)
                           : GroupedGemmFp8WgradSm90(g, {}, nullptr));
      };
      Fp8Lt lt = op < 2 ? Fp8Lt(handle, n, rows, k, false, CUDA_R_16BF, 0, workspace)
                        : Fp8Lt(handle, k, n, rows, true, CUDA_R_32F, 1, workspace);
      const auto run_lt = [&] {
        if (!lt.usable()) return;
        if (op < 2) {
          lt.Run(w.As<void>(), scales.As<float>(), x.As<void>(), scales.As<float>(), y.As<void>());
        } else {
          lt.Run(x.As<void>(), scales.As<float>(), dy.As<void>(), scales.As<float>(),
                 dw.As<void>());
        }
      };
      // BF16 keeps weights [N, K] and rows as they are in every pass.
      DenseGemm dense =
          op == 0   ? DenseGemm(handle, true, false, s.n, rows, s.k, CUDA_R_16BF, 0, workspace)
          : op == 1 ? DenseGemm(handle, false, false, s.k, rows, s.n, CUDA_R_16BF, 0, workspace)
                    : DenseGemm(handle, false, true, s.k, s.n, rows, CUDA_R_32F, 1, workspace);
      const auto run_dense = [&] {
        if (op < 2) {
          dense.Run(w16.As<void>(), x16.As<void>(), y.As<void>());
        } else {
          dense.Run(x16.As<void>(), x16.As<void>(), dw.As<void>());
        }
      };
      if (!warm) {
        for (int i = 0; i < 1000; ++i) run_dense();
      }
      warm = true;
      const PairedTime t = TimePaired(ours, run_lt, pairs, 2),
                       u = TimePaired(ours, run_dense, pairs, 2);
      const double gflop = 2.0 * rows * n * k / 1e9;
      std::printf("%-12s %-8s %6d %6d           %6.0f %6.0f %6.0f  %6.3f  ours/BF16 %6.3f\n",
                  s.name,
                  op == 0   ? "forward"
                  : op == 1 ? "dgrad"
                            : "wgrad b1",
                  n, k, gflop / u.second_ms, lt.usable() ? gflop / t.second_ms : 0.0,
                  gflop / t.first_ms, lt.usable() ? t.ratio : 0.0, u.ratio);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace

}  // namespace yardmaster::bench

int main(int argc, char** argv) { return yardmaster::bench::Main(argc, argv); }
