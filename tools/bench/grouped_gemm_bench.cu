// File: tools/bench/grouped_gemm_bench.cu
//
// Times the grouped GEMM beside dense cuBLASLt on the same rows, DeepSeek-V3 expert shapes: gate+up
// (N=4096, K=7168) and down (N=7168, K=2048). Both run in turn in one process; the ratio is the
// median over the pairs of dense time / our time (above 1: faster than dense). Data are random:
// zeros would draw less power and run faster. Routings: routing_counts.h.
//
//   grouped_gemm_bench [--rows 32768] [--pairs 9] [--experts 4,8,32] [--routing
//   all|balanced,skew:4,...]
//                      [--group 4] [--pause 2] [--ops forward,...] [--free-sms 0]
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "kernels/grouped_gemm/sm90_launch.h"
#include "tools/bench/gpu_bench.cuh"
#include "tools/commands/routing_counts.h"

namespace yardmaster::bench {

namespace {

using sm90::GemmConfig;
using sm90::GemmOp;
using sm90::GemmProblem;

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

struct Variant {
  std::string name;
  GemmOp op;
  GroupedGemmOutput output;
  bool accumulate;
  bool squares = false;
};

const std::vector<Variant> kVariants = {
    {"forward", GemmOp::kForward, GroupedGemmOutput::kBf16, false},
    {"dgrad", GemmOp::kDgrad, GroupedGemmOutput::kBf16, false},
    {"wgrad_f32_b1", GemmOp::kWgrad, GroupedGemmOutput::kFp32, true},
    {"wgrad_f32_b0", GemmOp::kWgrad, GroupedGemmOutput::kFp32, false},
    {"wgrad_f32_b0_squares", GemmOp::kWgrad, GroupedGemmOutput::kFp32, false, true},
    {"wgrad_bf16_b1", GemmOp::kWgrad, GroupedGemmOutput::kBf16, true},
    {"wgrad_bf16_b0", GemmOp::kWgrad, GroupedGemmOutput::kBf16, false},
};

struct Projection {
  std::string name;
  int n, k;
};

const std::vector<Projection> kProjections = {{"gate+up", 4096, 7168}, {"down", 7168, 2048}};

int Main(int argc, char** argv) {
  std::map<std::string, std::string> options = {
      {"--rows", "32768"},     {"--pairs", "9"},
      {"--experts", "4,8,32"}, {"--routing", "balanced,jitter"},
      {"--group", "0"},        {"--ops", ""},
      {"--free-sms", "0"},     {"--projections", ""},
      {"--pause", "default"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!options.count(argv[i])) {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
    options[argv[i]] = argv[i + 1];
  }
  if (options["--routing"] == "all")
    options["--routing"] = "balanced,jitter,skew:2,skew:4,one,empty";
  const int64_t rows = std::stoll(options["--rows"]);
  const int pairs = std::stoi(options["--pairs"]);
  const int free_sms = std::stoi(options["--free-sms"]);
  int max_experts = 1;
  for (const std::string& e : Split(options["--experts"]))
    max_experts = std::max(max_experts, std::stoi(e));

  cudaDeviceProp device;
  BENCH_CHECK(cudaGetDeviceProperties(&device, 0));
  std::printf("%s, %d multiprocessors, %lld rows, %d pairs; ratio = dense time / our time\n",
              device.name, device.multiProcessorCount, static_cast<long long>(rows), pairs);
  const size_t weight_elements = size_t{4096} * 7168 * max_experts;
  DeviceMemory wide(rows * 7168 * 2), narrow(rows * 4096 * 2), out(rows * 7168 * 2);
  DeviceMemory weights(weight_elements * 2), gradients(weight_elements * 4),
      dense_gradient(size_t{4096} * 7168 * 4);
  DeviceMemory offsets((max_experts + 1) * 8), workspace(64 << 20), squares(weight_elements / 512);
  FillNormal(wide.As<__nv_bfloat16>(), rows * 7168, 1, 1.0f);
  FillNormal(narrow.As<__nv_bfloat16>(), rows * 4096, 2, 1.0f);
  FillNormal(weights.As<__nv_bfloat16>(), weight_elements, 3, 0.02f);
  FillNormal(gradients.As<float>(), weight_elements, 4, 1.0f);
  FillNormal(dense_gradient.As<float>(), size_t{4096} * 7168, 5, 1.0f);
  int warm_up = 250;
  cublasLtHandle_t handle;
  BENCH_CHECK(cublasLtCreate(&handle));

  std::printf("%-8s %-20s %3s %-9s %-9s %9s %7s %9s %7s %6s\n", "shape", "op", "E", "routing",
              "config", "ours ms", "TFLOP/s", "dense ms", "TFLOP/s", "ratio");
  for (const Projection& projection : kProjections) {
    if (!options["--projections"].empty() && options["--projections"] != projection.name) continue;
    const int n = projection.n, k = projection.k;
    // x_RK and dy_RN: whichever is wider lies in `wide`.
    const void* x = k > n ? wide.As<void>() : narrow.As<void>();
    const void* dy = k > n ? narrow.As<void>() : wide.As<void>();
    const double flops = 2.0 * rows * n * k;
    for (const Variant& variant : kVariants) {
      const std::string ops = options["--ops"];
      if (!ops.empty() && ("," + ops + ",").find("," + variant.name + ",") == std::string::npos)
        continue;
      std::unique_ptr<DenseGemm> dense;
      std::function<void()> run_dense;
      GemmProblem problem;
      problem.op = variant.op;
      problem.output = variant.output;
      problem.accumulate = variant.accumulate;
      if (variant.squares) problem.squares = squares.As<double>();
      problem.offsets = offsets.As<int64_t>();
      switch (variant.op) {
        case GemmOp::kForward:
          dense = std::make_unique<DenseGemm>(handle, true, false, n, rows, k, CUDA_R_16BF, 0.0f,
                                              workspace);
          run_dense = [&, x] { dense->Run(weights.As<void>(), x, out.As<void>()); };
          problem.a = weights.As<void>(), problem.b = x, problem.d = out.As<void>();
          break;
        case GemmOp::kDgrad:
          dense = std::make_unique<DenseGemm>(handle, false, false, k, rows, n, CUDA_R_16BF, 0.0f,
                                              workspace);
          run_dense = [&, dy] { dense->Run(weights.As<void>(), dy, out.As<void>()); };
          problem.a = weights.As<void>(), problem.b = dy, problem.d = out.As<void>();
          break;
        case GemmOp::kWgrad:
          dense = std::make_unique<DenseGemm>(
              handle, false, true, k, n, rows,
              variant.output == GroupedGemmOutput::kFp32 ? CUDA_R_32F : CUDA_R_16BF,
              variant.accumulate ? 1.0f : 0.0f, workspace);
          run_dense = [&, x, dy] { dense->Run(x, dy, dense_gradient.As<void>()); };
          problem.a = dy, problem.b = x, problem.d = gradients.As<void>();
          break;
      }
      // A cold GPU has power to spare, which a training step never sees: heat it first.
      for (; warm_up > 0; --warm_up) run_dense();
      for (const std::string& e : Split(options["--experts"])) {
        const int experts = std::stoi(e);
        problem.shape = {rows, experts, n, k};
        for (const std::string& routing : Split(options["--routing"])) {
          std::vector<int64_t> starts(experts + 1, 0);
          const std::vector<int64_t> counts = RoutingCounts(routing, experts, rows);
          for (int i = 0; i < experts; ++i) starts[i + 1] = starts[i] + counts[i];
          BENCH_CHECK(cudaMemcpy(offsets.As<void>(), starts.data(), starts.size() * 8,
                                 cudaMemcpyHostToDevice));
          for (const std::string& group : Split(options["--group"])) {
            GemmConfig config =
                sm90::SelectConfig(variant.op, variant.output == GroupedGemmOutput::kFp32,
                                   device.multiProcessorCount, free_sms);
            if (group != "0") config.group = std::stoi(group);
            for (const std::string& pause : Split(options["--pause"])) {
              if (pause != "default") config.store_pause = std::stoi(pause);
              const auto ours = [&] { BENCH_CHECK(sm90::LaunchGemm(problem, config, nullptr)); };
              const PairedTime t = TimePaired(ours, run_dense, pairs, 2);
              std::printf("%-8s %-20s %3d %-9s g%d p%-6d", projection.name.c_str(),
                          variant.name.c_str(), experts, routing.c_str(), config.group,
                          config.store_pause);
              PrintPair(t, flops);
            }
          }
        }
      }
    }
  }
  cublasLtDestroy(handle);
  return 0;
}

}  // namespace

}  // namespace yardmaster::bench

int main(int argc, char** argv) { return yardmaster::bench::Main(argc, argv); }
