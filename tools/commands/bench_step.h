// File: tools/commands/bench_step.h
//
// `yardmaster bench step CONFIG`: whole training steps of a configuration, without a run directory; under mpirun
// on all ranks, with the figures of one of them. One measured step is what training does: copy the batch to the device, the step, read its
// report. Then a few steps are timed op by op; those run without the CUDA graph.
//   --routing  balanced and skew:S force the router's choice (moe.force_routing); real leaves it to the
//   router
//   --impl     naive: what a trainer without the work on speed does: a loop of dense GEMMs over the experts
//   with counts
//              read by the host, attention of matrix products and softmax kernels, no CUDA graph
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/comm/mpi/mpi_world.h"
#include "src/config/config.h"
#include "src/device/timeline.h"

namespace yardmaster {

struct BenchStepOptions {
  std::string config_path = {};
  std::vector<std::string> set = {};  // after what the options below set
  std::string routing = "real";       // real, balanced, skew:S
  std::string impl = "auto";          // auto, naive
  int64_t steps = 15;                 // measured
  int64_t warmup = 4;                 // before; at least 2, the second of which records the graph
  int64_t timed = 2;                  // op by op, after; 0: none
  bool ops = false;                   // a line for each op and size
  bool json = false;
};

// Overrides of the configuration that --routing and --impl stand for. Throws ConfigError for unknown ones.
std::vector<std::string> BenchStepOverrides(const BenchStepOptions& options);

// Times of one op and size within a step.
struct OpTotal {
  std::string op, what;
  double calls = 0, milliseconds = 0, flops = 0, bytes = 0;  // a step
};
// Summed by op and size over `steps` steps, a step's share each; the most time first.
std::vector<OpTotal> TotalsByOp(const std::vector<OpTime>& ops, int64_t steps);

struct BenchStepResult {
  std::string device;
  std::vector<double> milliseconds;  // of the measured steps
  int ranks = 1;
  int64_t tokens = 0;                // of a step, on one rank
  double flops_per_token = 0;
  std::string flops_formula;
  double first_loss = 0, last_loss = 0;
  double load_max_over_mean = 0;  // of the last measured step, the worst layer
  size_t planned_bytes = 0, used_bytes = 0;
  bool graph = false;  // the measured steps were replays
  StepTimes times;     // of all timed steps together
  int64_t timed_steps = 0;
};
// Median, tokens/s, TFLOP/s with the formula, memory, parts; one JSON object with options.json.
std::string BenchStepText(const BenchStepOptions& options, const BenchStepResult& result);

// Prints BenchStepText (on rank 0) and returns the exit code. `world` null: one process. Throws Error. Collective.
int RunBenchStep(const BenchStepOptions& options, MpiWorld* world = nullptr);

}  // namespace yardmaster
