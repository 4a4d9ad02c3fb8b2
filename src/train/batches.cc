#include "src/train/batches.h"

#include <algorithm>

namespace yardmaster {
namespace {

HostBatch EmptyBatch(int64_t sequences, int64_t micro_batch_size, int64_t seq_len) {
  HostBatch batch;
  batch.micro_batches = sequences / micro_batch_size;
  const auto n = static_cast<size_t>(sequences * seq_len);
  batch.tokens.assign(n, 0);
  batch.targets.assign(n, kIgnoreTarget);
  batch.positions.assign(n, 0);
  batch.document_start.assign(n, 0);
  return batch;
}

}  // namespace

BatchSource::BatchSource(SampleStream stream, int64_t micro_batch_size, int dp_rank, int dp_size)
    : stream_(std::move(stream)), micro_batch_size_(micro_batch_size), dp_rank_(dp_rank), dp_size_(dp_size) {}

void BatchSource::Fill(HostBatch* batch, int64_t row, int64_t sample) {
  const auto at = static_cast<size_t>(row * stream_.seq_len());
  stream_.Get(sample, &batch->tokens[at], &batch->targets[at], &batch->positions[at],
              &batch->document_start[at]);
  // Positions of RoPE count from the beginning of the sample: documents share a sample without masking, as in
  // DeepSeek-V3's pre-training.
  for (int64_t i = 0; i < stream_.seq_len(); ++i)
    batch->positions[at + static_cast<size_t>(i)] = static_cast<int32_t>(i);
}

HostBatch BatchSource::Read(int64_t first, int64_t count) {
  YM_CHECK_EQ(count % (micro_batch_size_ * dp_size_), 0);
  const int64_t mine = count / dp_size_;
  HostBatch batch = EmptyBatch(mine, micro_batch_size_, stream_.seq_len());
  for (int64_t i = 0; i < mine; ++i) Fill(&batch, i, first + dp_rank_ * mine + i);
  return batch;
}

HostBatch BatchSource::ReadPadded(int64_t first, int64_t count) {
  const int64_t unit = micro_batch_size_ * dp_size_;
  const int64_t mine = (count + unit - 1) / unit * micro_batch_size_;
  HostBatch batch = EmptyBatch(mine, micro_batch_size_, stream_.seq_len());
  for (int64_t i = 0; i < mine; ++i) {
    const int64_t sample = dp_rank_ * mine + i;
    if (sample < count) {
      Fill(&batch, i, first + sample);
    } else {
      for (int64_t t = 0; t < stream_.seq_len(); ++t)
        batch.positions[static_cast<size_t>(i * stream_.seq_len() + t)] = static_cast<int32_t>(t);
    }
  }
  return batch;
}

}  // namespace yardmaster
