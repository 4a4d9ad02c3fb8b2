// What a captured step asks of these ops: they run inside cudaStreamCaptureModeGlobal, and a replay gives the bits of an eager
// run, with row counts that have changed since the capture.
#include "tests/cuda/gpu.h"

#if YM_HAVE_CUDA

#include "src/ops/attention.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/gemm.h"
#include "src/ops/grouped_gemm.h"
#include "src/ops/linear_cross_entropy.h"

namespace yardmaster::testing {
namespace {

void CheckReplay(GroupedGemmMode mode) {
  Gpu gpu(size_t{1} << 30);
  const cudaStream_t s = CudaStream(gpu.stream());
  const int64_t T = 256, D = 256, L = 4, H = 2, V = 1000;
  const auto bf16 = [&](const char* name, const Shape& shape) {
    return gpu.Make(DType::kBF16, shape, RandomValues(name, shape.elements()));
  };
  const Tensor x = bf16("x", {T, D}), w = bf16("w", {L, D, D}), offsets = gpu.Make(DType::kI64, {L + 1}, {0, 10, 100, 100, 200});
  const Tensor rows = gpu.Make(DType::kBF16, {T, D}), dw = gpu.Make(DType::kF32, {L, D, D}), dense = gpu.Make(DType::kF32, {T, D});
  const AttentionArgs f{.q = bf16("q", {1, T, H, 192}), .k = bf16("k", {1, T, H, 192}), .v = bf16("v", {1, T, H, 128}),
                        .scale = 0.1, .o = gpu.Make(DType::kBF16, {1, T, H, 128}), .lse = gpu.Make(DType::kF32, {1, H, T})};
  const AttentionBackwardArgs b{.forward = f, .do_ = bf16("do", {1, T, H, 128}), .dq = gpu.Make(DType::kBF16, {1, T, H, 192}),
                                .dk = gpu.Make(DType::kBF16, {1, T, H, 192}), .dv = gpu.Make(DType::kBF16, {1, T, H, 128})};
  const Tensor head = bf16("head", {V, D}), targets = gpu.Make(DType::kI32, {T}, std::vector<double>(T, 7));
  const Tensor loss = gpu.Make(DType::kF64, {1}), dx = gpu.Make(DType::kBF16, {T, D}), dhead = gpu.Make(DType::kF32, {V, D});
  const auto step = [&] {
    Gemm(gpu.stream(), {.a = x, .b = w.At(0), .d = dense, .trans_b = true});
    GroupedGemmForward(gpu.stream(), x, w, offsets, rows, mode);
    GroupedGemmBackwardWeight(gpu.stream(), rows, x, offsets, 0, dw, mode);
    AttentionForward(gpu.stream(), f, gpu.work());
    AttentionBackward(gpu.stream(), b, gpu.work());
    YM_CUDA_CHECK(gpu.stream(), "test", cudaMemsetAsync(loss.data(), 0, 8, s));
    LinearCrossEntropy(gpu.stream(), {.x = x, .head = head, .targets = targets, .grad_scale = 0.01, .loss_sum = loss, .dx = dx,
                                      .dhead = dhead}, gpu.work());
  };
  const std::vector<Tensor> outputs = {dense, rows, dw, f.o, f.lse, b.dq, b.dk, b.dv, loss, dx, dhead};
  const auto bits = [&] {
    std::vector<std::string> all;
    for (const Tensor& t : outputs) all.push_back(gpu.Bytes(t));
    return all;
  };
  step();  // plans are made here; a captured step makes none
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  YM_CUDA_CHECK(gpu.stream(), "test", cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  step();
  YM_CUDA_CHECK(gpu.stream(), "test", cudaStreamEndCapture(s, &graph));
  YM_CUDA_CHECK(gpu.stream(), "test", cudaGraphInstantiate(&exec, graph, 0));
  for (const std::vector<double>& counts : {std::vector<double>{0, 10, 100, 100, 200}, {0, 0, 1, 250, 256}}) {
    HostTensor host(DType::kI64, {L + 1});
    SetValues(host.view(), counts);
    gpu.device().CopyFromHost(offsets.data(), host.view().data(), static_cast<size_t>(offsets.bytes()));
    for (const Tensor& t : outputs) gpu.Poison(t);
    step();
    const auto eager = bits();
    for (const Tensor& t : outputs) gpu.Poison(t);
    YM_CUDA_CHECK(gpu.stream(), "test", cudaGraphLaunch(exec, s));
    CHECK(bits() == eager);
  }
  static_cast<void>(cudaGraphExecDestroy(exec));
  static_cast<void>(cudaGraphDestroy(graph));
}

TEST_CASE("gpu capture: GEMM, grouped GEMM, attention and loss replay bit for bit with new counts") {
  YM_NEEDS_GPU();
  CheckReplay(GroupedGemmMode::kAuto);
}

TEST_CASE("gpu capture: the same with the portable grouped GEMM") {
  YM_NEEDS_GPU();
  CheckReplay(GroupedGemmMode::kPortable);
}

}  // namespace
}  // namespace yardmaster::testing

#endif
