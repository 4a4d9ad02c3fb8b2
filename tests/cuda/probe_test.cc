// Hidden: gpu_test "[probe]" prints what cuDNN and cuBLASLt do at the reference model's sizes. It times, and asserts nothing
// about time.
#include "tests/cuda/gpu.h"
#include "tests/cuda/median_ms.h"

#if YM_HAVE_CUDA

#include <iostream>

#include "src/ops/attention.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/gemm.h"
#include "src/ops/grouped_gemm.h"
#include "src/ops/linear_cross_entropy.h"

namespace yardmaster::testing {
namespace {

TEST_CASE("probe: attention, GEMM, grouped GEMM and loss at full size", "[.][probe]") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{24} << 30);
  std::cout << gpu.device().description() << "\n";
  // A megabyte of random values, repeated: random enough for power, quick to make.
  const auto values = RandomValues("probe", 1 << 19);
  const auto bf16 = [&](const Shape& shape) {
    const Tensor t = gpu.Make(DType::kBF16, shape, {0});
    HostTensor block(DType::kBF16, {1 << 19});
    SetValues(block.view(), values);
    for (int64_t at = 0; at < t.bytes(); at += 1 << 20) {
      gpu.device().CopyFromHost(static_cast<char*>(t.data()) + at, block.view().data(),
                                static_cast<size_t>(std::min<int64_t>(1 << 20, t.bytes() - at)));
    }
    return t;
  };
  for (const auto& [H, G, Q, V] : {std::array<int64_t, 4>{128, 128, 192, 128}, {64, 8, 128, 128}}) {
    const int64_t B = 2, S = 4096;
    const AttentionArgs f{.q = bf16({B, S, H, Q}), .k = bf16({B, S, G, Q}), .v = bf16({B, S, G, V}), .scale = 0.07,
                          .o = bf16({B, S, H, V}), .lse = gpu.Make(DType::kF32, {B, H, S}, {0})};
    AttentionBackwardArgs b{.forward = f, .do_ = bf16({B, S, H, V}), .dq = bf16({B, S, H, Q}), .dk = bf16({B, S, G, Q}),
                            .dv = bf16({B, S, G, V})};
    const double flops = static_cast<double>(B * H * S * S) * static_cast<double>(Q + V);  // causal: half of 2 x 2
    const double forward = MedianMs(gpu, 7, [&] { AttentionForward(gpu.stream(), f, gpu.work()); });
    const double backward = MedianMs(gpu, 7, [&] { AttentionBackward(gpu.stream(), b, gpu.work()); });
    b.deterministic = false;
    const double fast = MedianMs(gpu, 7, [&] { AttentionBackward(gpu.stream(), b, gpu.work()); });
    std::cout << "attention B " << B << " S " << S << " H " << H << " G " << G << " " << Q << "/" << V << ": forward " << forward
              << " ms, " << flops / forward * 1e-9 << " TFLOP/s; backward deterministic " << backward << " ms, fast " << fast
              << " ms\n";
  }
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{8192, 7168, 2048}, {8192, 1536, 7168}, {8192, 24576, 1536}, {8192, 8192, 8192}}) {
    const Tensor a = bf16({m, k}), w = bf16({n, k}), d = bf16({m, n});
    const double ms = MedianMs(gpu, 7, [&] { Gemm(gpu.stream(), {.a = a, .b = w, .d = d, .trans_b = true}); });
    std::cout << "gemm " << m << " x " << n << " x " << k << ": " << ms << " ms, " << 2e-9 * static_cast<double>(m * n * k) / ms
              << " TFLOP/s\n";
  }
  {
    const int64_t L = 32, N = 4096, K = 7168, R = 16384;
    const Tensor x = bf16({R, K}), w = bf16({L, N, K}), y = bf16({R, N}), dw = gpu.Make(DType::kF32, {L, N, K}, {0});
    std::vector<double> off;
    for (int64_t l = 0; l <= L; ++l) off.push_back(static_cast<double>(l * R / L));
    const Tensor offsets = gpu.Make(DType::kI64, {L + 1}, off);
    for (const GroupedGemmMode mode : {GroupedGemmMode::kAuto, GroupedGemmMode::kPortable, GroupedGemmMode::kLoop}) {
      const double forward = MedianMs(gpu, 7, [&] { GroupedGemmForward(gpu.stream(), x, w, offsets, y, mode); });
      const double wgrad = MedianMs(gpu, 7, [&] { GroupedGemmBackwardWeight(gpu.stream(), y, x, offsets, 1, dw, mode); });
      const double tflop = 2e-9 * static_cast<double>(R * N * K);
      std::cout << "grouped gemm mode " << static_cast<int>(mode) << ": forward " << tflop / forward << " TFLOP/s, wgrad "
                << tflop / wgrad << " TFLOP/s\n";
    }
  }
  {
    const int64_t T = 4096, D = 7168, V = 129280;
    const Tensor x = bf16({T, D}), head = bf16({V, D}), dx = bf16({T, D}), dhead = gpu.Make(DType::kF32, {V, D}, {0});
    const Tensor targets = gpu.Make(DType::kI32, {T}, std::vector<double>(T, 5)), sum = gpu.Make(DType::kF64, {1}, {0});
    const double ms = MedianMs(gpu, 7, [&] {
      LinearCrossEntropy(gpu.stream(), {.x = x, .head = head, .targets = targets, .grad_scale = 1e-4, .loss_sum = sum, .dx = dx,
                                        .dhead = dhead, .beta_head = 1}, gpu.work());
    });
    std::cout << "head and loss T " << T << " V " << V << ": " << ms << " ms, " << 6e-9 * static_cast<double>(T * D) * V / ms
              << " TFLOP/s\n";
  }
  std::cout << AttentionPlans(gpu.stream()) << GemmAlgorithms(gpu.stream());
}

}  // namespace
}  // namespace yardmaster::testing

#endif
