// Rates of the quantisers beside a copy's: quantize_gpu_test "[probe]". Nothing is checked.
#include <functional>
#include <iomanip>
#include <iostream>
#include <string>

#include "src/ops/adamw.h"
#include "src/ops/quantize.h"
#include "src/ops/quantize_fused.h"
#include "src/ops/quantize_nvfp4.h"
#include "src/ops/random_normal.h"
#include "src/ops/step_control.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/median_ms.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/cuda_stream.h"

namespace yardmaster::testing {
namespace {

constexpr QuantFormat kMx{QuantKind::kMxfp8};
constexpr QuantFormat kPow2{QuantKind::kFp8Block, true};
constexpr QuantFormat kExact{QuantKind::kFp8Block, false};

TEST_CASE("probe: the update of weights, with and without their 8-bit copies", "[.][probe]") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{5} << 30, size_t{1} << 20);
  const int64_t L = 8, N = 4096, K = 7168;
  const auto n = static_cast<double>(L * N * K);
  const auto zeros = [&](DType type) { return gpu.Make(type, {L, N, K}, {0}); };
  const Tensor master = zeros(DType::kF32), grad = zeros(DType::kF32), m = zeros(DType::kBF16), v = zeros(DType::kBF16);
  const Tensor weight = zeros(DType::kBF16), state = gpu.Make(DType::kU8, {static_cast<int64_t>(sizeof(StepState))}, {0});
  const StepState s;
  gpu.device().CopyFromHost(state.data(), &s, sizeof(s));
  RandomNormal(gpu.stream(), {.seed = 1, .spec = ShardSpec::Replicated({L, N, K}), .y = grad, .copy = {}});
  const auto report = [&](const std::string& what, double bytes, const std::function<void()>& f) {
    const double ms = MedianMs(gpu, 15, f);
    std::cout << std::setw(52) << what << ": " << std::fixed << std::setprecision(3) << ms << " ms  " << 1e-9 * bytes / ms << " TB/s\n";
  };
  const AdamWTensor plain{.master = master, .weight = weight, .grad = grad, .m = m, .v = v};
  report("AdamW with a BF16 weight", 22 * n, [&] { AdamWMulti(gpu.stream(), {plain}, {}, state); });
  for (const QuantFormat& format : {kPow2, kExact, kMx}) {
    const auto make = [&](int64_t rows, int64_t columns) {
      return Quantized{gpu.Make(DType::kU8, {L, rows, columns}, {0}), gpu.Make(format.scale_type(), WeightScaleShape(format, L, rows, columns), {0})};
    };
    const WeightCopies copies{format, make(N, K), make(K, N)};
    const std::string name = std::string(QuantName(format)) + (format == kExact ? " exact" : "");
    report(name + ", copies of the BF16 weight", 4 * n, [&] { QuantizeWeights(gpu.stream(), copies, weight); });
    report(name + ", copies of the FP32 master", 6 * n, [&] { QuantizeWeights(gpu.stream(), copies, master); });
    const AdamWTensor fused{.master = master, .grad = grad, .m = m, .v = v, .copies = copies};
    report(name + ", AdamW and copies in one pass", 22 * n, [&] { AdamWMulti(gpu.stream(), {fused}, {}, state); });
  }
}

TEST_CASE("probe: quantisation beside a copy", "[.][probe]") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{8} << 30, size_t{1} << 30);
  const int64_t R = 32768, L = 32;
  const auto filled = [&](DType type, const Shape& shape) {
    const Tensor t = gpu.Make(type, shape, {0});
    HostTensor block(type, {1 << 20});
    SetValues(block.view(), RandomValues("probe", 1 << 20));
    for (int64_t at = 0; at < t.bytes(); at += block.view().bytes()) {
      gpu.device().CopyFromHost(static_cast<char*>(t.data()) + at, block.view().data(),
                                static_cast<size_t>(std::min(block.view().bytes(), t.bytes() - at)));
    }
    return t;
  };
  std::vector<double> offsets = {0};  // uneven, not aligned, full
  for (int64_t l = 1; l < L; ++l) offsets.push_back(static_cast<double>(l * R / L + (l * 53 % 97) - 48));
  offsets.push_back(static_cast<double>(R));
  const Tensor off = gpu.Make(DType::kI64, {L + 1}, offsets);
  for (const int64_t C : {7168, 2048}) {
    const Tensor x = filled(DType::kBF16, {R, C}), y = gpu.Make(DType::kBF16, {R, C}, {0});
    const cudaStream_t s = CudaStream(gpu.stream());
    const double copy_ms = MedianMs(gpu, 15, [&] {
      YM_CUDA_CHECK(gpu.stream(), "probe", cudaMemcpyAsync(y.data(), x.data(), static_cast<size_t>(x.bytes()), cudaMemcpyDeviceToDevice, s));
    });
    const double copy = 2e-9 * static_cast<double>(x.bytes()) / copy_ms;
    std::cout << std::fixed << std::setprecision(3) << "copy of " << R << " x " << C << " BF16: " << copy_ms << " ms, " << copy << " TB/s\n";
    const auto report = [&](const std::string& what, double bytes, const std::function<void()>& f) {
      const double ms = MedianMs(gpu, 15, f), rate = 1e-9 * bytes / ms;
      std::cout << std::setw(34) << what << ": " << std::setw(7) << ms << " ms  " << rate << " TB/s  " << std::setprecision(1)
                << 100 * rate / copy << " % of copy\n" << std::setprecision(3);
    };
    const auto n = static_cast<double>(R * C);
    const Tensor gate_up = filled(DType::kBF16, {R, 2 * C});
    const Tensor w = filled(DType::kF32, {R}), weight = filled(DType::kBF16, {C});
    for (const QuantFormat& format : {kPow2, kExact, kMx}) {
      const std::string name = std::string(QuantName(format)) + (format == kExact ? " exact" : "");
      const double scales = n * (format.kind == QuantKind::kMxfp8 ? 1.0 / 32 : 4.0 / 128);
      const Shape rows_shape{R, C}, cols_shape{C, PaddedRows(R, L)};
      const auto make = [&](const Shape& codes) {
        return Quantized{gpu.Make(DType::kU8, codes, {0}), gpu.Make(format.scale_type(), ScaleShape(format, codes[0], codes[1]), {0})};
      };
      const Quantized rows = make(rows_shape), cols = make(cols_shape);
      report(name + ", both copies", 4 * n + 2 * scales, [&] {
        QuantizeRows(gpu.stream(), {.format = format, .x = x, .offsets = off, .rows = rows, .cols = cols});
      });
      report(name + ", rows", 3 * n + scales, [&] { QuantizeRows(gpu.stream(), {.format = format, .x = x, .offsets = off, .rows = rows}); });
      report(name + ", transposed", 3 * n + scales, [&] { QuantizeRows(gpu.stream(), {.format = format, .x = x, .offsets = off, .cols = cols}); });
      report(name + ", SwiGLU, both", 6 * n + 2 * scales, [&] {
        QuantizeSwiglu(gpu.stream(), {.format = format, .gate_up = gate_up, .w = w, .offsets = off, .rows = rows, .cols = cols}, gpu.work());
      });
      report(name + ", RMSNorm, both", 4 * n + 2 * scales, [&] {
        QuantizeNormed(gpu.stream(), {.format = format, .h = x, .rstd = w, .weight = weight, .offsets = off, .rows = rows, .cols = cols}, gpu.work());
      });
      report(name + ", rows back", 3 * n + scales, [&] { Dequantize(gpu.stream(), {.format = format, .rows = rows, .offsets = off, .out = y}); });
      report(name + ", transposed back", 3 * n + scales, [&] { Dequantize(gpu.stream(), {.format = format, .cols = cols, .offsets = off, .out = y}); });
      const Tensor weights = x.Reshape({8, R / 8, C});
      const Quantized wr{rows.codes.Reshape({8, R / 8, C}), gpu.Make(format.scale_type(), WeightScaleShape(format, 8, R / 8, C), {0})};
      const Quantized wc{gpu.Make(DType::kU8, {8, C, R / 8}, {0}), gpu.Make(format.scale_type(), WeightScaleShape(format, 8, C, R / 8), {0})};
      if (format == kMx) {
        const auto tiles = [&](const Shape& shape) { return gpu.Make(DType::kU8, shape, {0}); };
        const Tensor rt = tiles(TileScaleShape(R, L, C / 32)), ct = tiles(TileColumnScaleShape(R, L, C)),
                     wt = tiles(TileWeightScaleShape(8, R / 8, C / 32));
        report(name + ", tiles of rows' scales", 2 * scales,
               [&] { ScalesToTiles(gpu.stream(), rows.scales, R, off, rt); });
        report(name + ", tiles of columns' scales", 2 * scales,
               [&] { ColumnScalesToTiles(gpu.stream(), cols.scales, C, R, off, ct); });
        report(name + ", tiles of weights' scales", 2 * scales,
               [&] { WeightScalesToTiles(gpu.stream(), wr.scales, wt); });
      }
      report(name + ", weights, both", 4 * n, [&] { QuantizeWeights(gpu.stream(), {.format = format, .w = weights, .rows = wr, .cols = wc}); });
    }
    const Tensor amax = gpu.Make(DType::kF32, {1}, {1}), codes = gpu.Make(DType::kU8, {R, C / 2}, {0}), scales = gpu.Make(DType::kU8, {R, C / 16}, {0});
    report("nvfp4", n * (2 + 0.5 + 1.0 / 16), [&] { QuantizeNvfp4(gpu.stream(), {.x = x, .amax = amax, .codes = codes, .scales = scales}); });
    report("absolute maximum", n * 2, [&] { AbsMax(gpu.stream(), x, amax); });
  }
}

}  // namespace
}  // namespace yardmaster::testing
#endif
