// File: src/train/batches.h
//
// From the global sample index to the batch of this rank. The global batch of a step is samples [index, index
// + size) of the stream; data-parallel rank d takes the d-th of dp equal parts. Which samples a step sees
// never depends on the number of ranks.
#pragma once

#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/data/packing.h"
#include "src/train/engine.h"

namespace yardmaster {

class BatchSource {
 public:
  BatchSource(SampleStream stream, int64_t micro_batch_size, int dp_rank, int dp_size);

  // Training: samples [first, first + count) of the global batch, count divisible by micro_batch_size * dp.
  HostBatch Read(int64_t first, int64_t count);
  // Evaluation: this rank's share of samples [first, first + count); what is missing to whole micro-batches
  // is filled with samples whose targets do not count. Every rank gets the same number of micro-batches.
  HostBatch ReadPadded(int64_t first, int64_t count);

  const SampleStream& stream() const { return stream_; }

 private:
  void Fill(HostBatch* batch, int64_t row, int64_t sample);

  SampleStream stream_;
  int64_t micro_batch_size_;
  int dp_rank_, dp_size_;
};

}  // namespace yardmaster
