// File: tools/bench/grouped_gemm_fp8_bench.cu
//
// Times the FP8 grouped GEMM beside dense BF16 products of cuBLASLt on the same rows, DeepSeek-V3
// expert shapes: gate+up (N=4096, K=7168) and down (N=7168, K=2048). Both run in turn in one
// process; the ratio is the median over the pairs of dense time / our time. Data are random: zeros
// would draw less power and run faster. Routings: routing_counts.h. Weight gradients: FP32, beta 0
// and 1, beside dense ones of the same type and beta.
//
//   grouped_gemm_fp8_bench [--rows 32768] [--pairs 9] [--experts 4,8,32]
//                          [--routing balanced,jitter] [--group 8] [--cost 32] [--free-sms 0]
//                          [--ops forward,dgrad,wgrad_b1,wgrad_b0,wgrad_b0_squares]
//                          [--projections gate+up,down]
//                          [--warm-up 250] [--warpgroups default|2|3]
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "kernels/grouped_gemm_fp8/sm90_fp8_launch.h"
#include "tools/bench/fp8_data.cuh"
#include "tools/commands/routing_counts.h"

namespace yardmaster::bench {

namespace {

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

bool Listed(const std::string& list, const std::string& name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

struct Projection {
  std::string name;
  int n, k;
};

const std::vector<Projection> kProjections = {{"gate+up", 4096, 7168}, {"down", 7168, 2048}};

int Main(int argc, char** argv) {
  std::map<std::string, std::string> options = {{"--rows", "32768"},
                                                {"--pairs", "9"},
                                                {"--experts", "4,8,32"},
                                                {"--routing", "balanced,jitter"},
                                                {"--group", "default"},
                                                {"--warpgroups", "default"},
                                                {"--cost", "default"},
                                                {"--ops", "forward,dgrad,wgrad_b1,wgrad_b0"},
                                                {"--free-sms", "0"},
                                                {"--projections", "gate+up,down"},
                                                {"--warm-up", "250"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!options.count(argv[i])) {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
    options[argv[i]] = argv[i + 1];
  }
  const int64_t rows = std::stoll(options["--rows"]);
  const int pairs = std::stoi(options["--pairs"]);
  int max_experts = 1;
  for (const std::string& e : Split(options["--experts"]))
    max_experts = std::max(max_experts, std::stoi(e));

  cudaDeviceProp device;
  BENCH_CHECK(cudaGetDeviceProperties(&device, 0));
  std::printf("%s, %d multiprocessors, %lld rows, %d pairs; ratio = dense BF16 time / our time\n",
              device.name, device.multiProcessorCount, static_cast<long long>(rows), pairs);
  const int64_t padded = (rows + max_experts * 127) / 128 * 128;
  const size_t weight_elements = size_t{4096} * 7168 * max_experts;
  // Ours: codes and scales. The transposed copies are as large.
  DeviceMemory wide(padded * 7168), narrow(padded * 4096), weights(weight_elements);
  DeviceMemory row_scales((padded / 128 + 1) * 7168 * 4 + 56 * padded * 4),
      weight_scales(weight_elements / 16384 * 4);
  DeviceMemory out(rows * 7168 * 2), gradients(weight_elements * 4), offsets((max_experts + 1) * 8),
      squares(weight_elements / 256);
  FillCodes(wide.As<uint8_t>(), padded * 7168, 1);
  FillCodes(narrow.As<uint8_t>(), padded * 4096, 2);
  FillCodes(weights.As<uint8_t>(), weight_elements, 3);
  FillScales(row_scales.As<float>(), row_scales.bytes() / 4, 4, true, 0x1p-7f);
  FillScales(weight_scales.As<float>(), weight_scales.bytes() / 4, 5, true, 0x1p-12f);
  FillNormal(gradients.As<float>(), weight_elements, 6, 1.0f);
  // The yardstick's.
  DeviceMemory wide_bf16(rows * 7168 * 2), narrow_bf16(rows * 4096 * 2),
      weight_bf16(size_t{4096} * 7168 * 2), dense_gradient(size_t{4096} * 7168 * 4),
      workspace(64 << 20);
  FillNormal(wide_bf16.As<__nv_bfloat16>(), rows * 7168, 11, 1.0f);
  FillNormal(narrow_bf16.As<__nv_bfloat16>(), rows * 4096, 12, 1.0f);
  FillNormal(weight_bf16.As<__nv_bfloat16>(), size_t{4096} * 7168, 13, 0.02f);
  FillNormal(dense_gradient.As<float>(), size_t{4096} * 7168, 14, 1.0f);
  int warm_up = std::stoi(options["--warm-up"]);
  cublasLtHandle_t handle;
  BENCH_CHECK(cublasLtCreate(&handle));

  std::printf("%-8s %-16s %3s %-9s %-9s %9s %7s %9s %7s %6s\n", "shape", "op", "E", "routing",
              "config", "ours ms", "TFLOP/s", "dense ms", "TFLOP/s", "ratio");
  for (const Projection& projection : kProjections) {
    if (!Listed(options["--projections"], projection.name)) continue;
    const int n = projection.n, k = projection.k;
    const bool x_wide = k > n;  // of x and dy the wider lies in `wide`
    const double flops = 2.0 * rows * n * k;
    for (const std::string& op : Split(options["--ops"])) {
      const bool wgrad = op.rfind("wgrad", 0) == 0, forward = op == "forward",
                 accumulate = op == "wgrad_b1";
      std::unique_ptr<DenseGemm> dense;
      std::function<void()> run_dense;
      const void* x = (x_wide ? wide_bf16 : narrow_bf16).As<void>();
      const void* dy = (x_wide ? narrow_bf16 : wide_bf16).As<void>();
      if (wgrad) {
        dense = std::make_unique<DenseGemm>(handle, false, true, k, n, rows, CUDA_R_32F,
                                            accumulate ? 1.0f : 0.0f, workspace);
        run_dense = [&, x, dy] { dense->Run(x, dy, dense_gradient.As<void>()); };
      } else {
        dense = std::make_unique<DenseGemm>(handle, forward, false, forward ? n : k, rows,
                                            forward ? k : n, CUDA_R_16BF, 0.0f, workspace);
        run_dense = [&, x, dy] {
          dense->Run(weight_bf16.As<void>(), forward ? x : dy, out.As<void>());
        };
      }
      // A cold GPU has power to spare, which a training step never sees: heat it first.
      for (; warm_up > 0; --warm_up) run_dense();
      for (const std::string& e : Split(options["--experts"])) {
        const int experts = std::stoi(e);
        for (const std::string& routing : Split(options["--routing"])) {
          std::vector<int64_t> starts(experts + 1, 0);
          const std::vector<int64_t> counts = RoutingCounts(routing, experts, rows);
          for (int i = 0; i < experts; ++i) starts[i + 1] = starts[i] + counts[i];
          BENCH_CHECK(cudaMemcpy(offsets.As<void>(), starts.data(), starts.size() * 8,
                                 cudaMemcpyHostToDevice));
          for (const std::string& group : Split(options["--group"])) {
            for (const std::string& cost : Split(options["--cost"])) {
              sm90fp8::Config config = sm90fp8::SelectConfig(device.multiProcessorCount,
                                                             std::stoi(options["--free-sms"]));
              if (cost != "default") config.tile_cost = std::stoi(cost);
              Fp8RowsArgs r;
              r.rows = rows, r.groups = experts, r.n = forward ? n : k, r.k = forward ? k : n;
              r.x = (forward == x_wide ? wide : narrow).As<uint8_t>(),
              r.x_scales = row_scales.As<float>();
              r.w = weights.As<uint8_t>(), r.w_scales = weight_scales.As<float>();
              r.offsets = offsets.As<int64_t>(), r.y = out.As<void>(), r.y_ld = r.n;
              Fp8WgradArgs w;
              w.rows = rows, w.padded = (rows + experts * 127) / 128 * 128, w.groups = experts,
              w.n = n, w.k = k;
              w.dy = (x_wide ? narrow : wide).As<uint8_t>(),
              w.x = (x_wide ? wide : narrow).As<uint8_t>();
              w.dy_scales = w.x_scales = row_scales.As<float>();
              w.offsets = offsets.As<int64_t>(), w.accumulate = accumulate,
              w.dw = gradients.As<float>();
              if (op == "wgrad_b0_squares") w.squares = squares.As<double>();
              const std::string& form = options["--warpgroups"];
              if (wgrad)
                sm90fp8::ChooseWgrad(w.padded, experts, k, accumulate,
                                     form == "default" ? 0 : std::stoi(form), &config);
              if (group != "default") config.group = std::stoi(group);
              const auto ours = [&] {
                BENCH_CHECK(wgrad ? sm90fp8::LaunchWgrad(w, config, nullptr)
                                  : sm90fp8::LaunchRows(r, config, nullptr));
              };
              const PairedTime t = TimePaired(ours, run_dense, pairs, 2);
              std::printf("%-8s %-16s %3d %-9s g%d c%-6d", projection.name.c_str(), op.c_str(),
                          experts, routing.c_str(), config.group, config.tile_cost);
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
