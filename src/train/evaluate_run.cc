#include "src/train/evaluate_run.h"

#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/train/checkpointing.h"
#include "src/train/evaluate.h"
#include "src/train/open_data.h"
#include "src/train/runtime.h"
#include "src/train/summary.h"

namespace yardmaster {

int RunEvaluate(const EvaluateRunOptions& options) {
  SingleProcess alone;
  LoadedRun run = OpenRun(options.run_dir, alone);
  Config& config = run.loaded.config;
  if (!options.data.empty()) config.data.validation = options.data;
  if (config.data.validation.empty())
    throw ConfigError("the run has no data.validation", run.path, "--data PREFIX names a data set");
  config.parallel = {};
  config.train.global_batch_size = Schedule::Constant(static_cast<double>(config.train.micro_batch_size));
  Runtime runtime(run.loaded, nullptr);
  const auto plan = Engine::Plan(EngineMode::kInference, config, runtime.groups(), runtime.dispatcher(),
                                 runtime.device().kind());
  Engine engine(EngineMode::kInference, config, runtime.groups(), runtime.dispatcher(), &runtime.device(),
                plan);
  LoadWeights(engine, run, alone);
  BatchSource source(OpenValidation(config), config.train.micro_batch_size, 0, 1);
  const EvaluationResult result =
      Evaluate(engine, source, 1, {.zero_routed_experts = options.zero_routed_experts});
  LogInfo(StrFormat("%s, step %lld%s", run.path.c_str(), static_cast<long long>(run.state.step),
                    options.zero_routed_experts ? ", without the routed experts' output" : ""));
  LogInfo(StrFormat("  %-34s %7.4f nats per token over %s tokens", "validation loss", result.loss,
                    HumanCount(static_cast<double>(result.tokens)).c_str()));
  const std::string bars = BarsLine(config.data.validation, result.loss);
  if (!bars.empty()) LogInfo(bars);
  return 0;
}

}  // namespace yardmaster
