#include "src/train/evaluate.h"

#include <algorithm>

#include "src/base/clock.h"

namespace yardmaster {

EvaluationResult Evaluate(Engine& engine, BatchSource& source, int64_t dp_size,
                          const EvaluationOptions& options) {
  const double start = NowSeconds();
  const int64_t all = source.stream().samples_per_epoch();
  const int64_t count = options.sequences > 0 ? std::min(options.sequences, all) : all;
  const int64_t at_once = engine.max_micro_batches() * engine.config().train.micro_batch_size * dp_size;
  double loss_sum = 0;
  EvaluationResult result;
  for (int64_t first = 0; first < count; first += at_once) {
    const HostBatch batch = source.ReadPadded(first, std::min(at_once, count - first));
    if (options.stop && options.stop()) {
      result.stopped = true;
      break;
    }
    engine.Stage(batch);
    engine.Evaluate(batch.micro_batches, &loss_sum, &result.tokens, options.zero_routed_experts);
  }
  result.loss = loss_sum / static_cast<double>(std::max<int64_t>(result.tokens, 1));
  result.seconds = NowSeconds() - start;
  return result;
}

}  // namespace yardmaster
