// File: tools/commands/bench_moe_layer.h
//
// `yardmaster bench moe-layer`: one mixture-of-experts layer of DeepSeek-V3 as training runs it on one GPU, forward and
// backward: router, dispatch, routed and shared experts, combine, every gradient.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace yardmaster {

struct BenchMoeLayerOptions {
  int64_t tokens = 8192;
  int64_t hidden = 7168;
  int64_t width = 2048;  // of an expert
  int64_t experts = 32;
  int64_t top_k = 8;
  int64_t groups = 8;
  int64_t top_groups = 4;
  int64_t shared = 1;
  std::string routing = "real";  // real: of the layer's own router on random tokens | balanced | skew:S
  std::string weight_gradients = "fp32";  // fp32: main gradients, as training keeps them | bf16
  int repeats = 15;
  double heat_seconds = 1;
  bool json = false;
};

struct BenchMoeLayerResult {
  std::string device;
  std::vector<double> forward_ms, ms;  // of each repeat; forward and backward together
  std::vector<int64_t> load;           // (token, expert) pairs of each expert
};

// FLOPs of forward and backward: 3 passes x 2 x tokens x (top_k + shared experts) x 3 matrices. The router is left out.
double MoeLayerFlops(const BenchMoeLayerOptions& options);

std::string BenchMoeLayerText(const BenchMoeLayerOptions& options, const BenchMoeLayerResult& result);

// Throws ConfigError for impossible sizes and where there is no GPU.
int RunBenchMoeLayer(const BenchMoeLayerOptions& options);

// The subcommand of `bench`; when it is given, `command` runs it.
void AddBenchMoeLayer(CLI::App& bench, std::function<int()>* command);

}  // namespace yardmaster
