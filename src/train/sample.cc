#include "src/train/sample.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "src/base/error.h"
#include "src/base/philox.h"
#include "src/base/strings.h"
#include "src/data/byte_tokenizer.h"
#include "src/train/checkpointing.h"
#include "src/train/runtime.h"

namespace yardmaster {
namespace {

// Draws from softmax(logits / temperature); temperature 0: the largest, ties to the lowest id.
int32_t Draw(const double* logits, int64_t n, double temperature, double uniform) {
  const int64_t best = std::max_element(logits, logits + n) - logits;
  if (temperature == 0) return static_cast<int32_t>(best);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp((logits[i] - logits[best]) / temperature);
  double left = uniform * sum;
  for (int64_t i = 0; i < n; ++i) {
    left -= std::exp((logits[i] - logits[best]) / temperature);
    if (left < 0) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(best);
}

}  // namespace

int RunSample(const SampleOptions& options) {
  if (options.tokens < 1) throw ConfigError(StrCat("--tokens must be at least 1, found ", options.tokens));
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    throw ConfigError(StrCat("--temperature must be a number of at least 0, found ", options.temperature));
  SingleProcess alone;
  LoadedRun run = OpenRun(options.run_dir, alone);
  Config& config = run.loaded.config;
  if (config.model.vocab_size != kByteVocabSize)
    throw ConfigError(StrCat("sample speaks bytes (vocabulary ", kByteVocabSize,
                             "); this model has a vocabulary of ", config.model.vocab_size),
                      run.path);
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = Schedule::Constant(1);
  config.parallel = {};
  Runtime runtime(run.loaded, nullptr);
  const auto plan = Engine::Plan(EngineMode::kInference, config, runtime.groups(), runtime.dispatcher(),
                                 runtime.device().kind());
  Engine engine(EngineMode::kInference, config, runtime.groups(), runtime.dispatcher(), &runtime.device(),
                plan);
  LoadWeights(engine, run, alone);

  const int64_t S = config.train.sequence_length, V = config.model.vocab_size;
  // A document begins after the end of another one, as in training.
  std::vector<int32_t> text{kByteEndOfDocument};
  const std::vector<int32_t> prompt = EncodeBytes(options.prompt);
  text.insert(text.end(), prompt.begin(), prompt.end());
  std::fputs(options.prompt.c_str(), stdout);
  HostBatch batch;
  batch.micro_batches = 1;
  for (int64_t i = 0; i < options.tokens; ++i) {
    const int64_t context = std::min<int64_t>(S, static_cast<int64_t>(text.size()));
    batch.tokens.assign(static_cast<size_t>(S), 0);
    batch.targets.assign(static_cast<size_t>(S), -1);
    batch.document_start.assign(static_cast<size_t>(S), 0);
    batch.positions.resize(static_cast<size_t>(S));
    for (int64_t t = 0; t < S; ++t) batch.positions[static_cast<size_t>(t)] = static_cast<int32_t>(t);
    std::copy(text.end() - context, text.end(), batch.tokens.begin());
    engine.Stage(batch);
    const std::vector<double> logits = engine.Logits();
    const int32_t next = Draw(&logits[static_cast<size_t>((context - 1) * V)], V, options.temperature,
                              PhiloxUniform(options.seed, StreamOf("sample"), static_cast<uint64_t>(i)));
    if (next == kByteEndOfDocument) break;
    text.push_back(next);
    std::fputc(next, stdout);
    std::fflush(stdout);
  }
  std::fputc('\n', stdout);
  return 0;
}

}  // namespace yardmaster
