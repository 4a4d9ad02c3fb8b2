// File: src/data/packing.h
//
// Cuts a data set into training samples. The documents, each with the end-of-document token that closes it,
// are concatenated; sample j is tokens [j*S, j*S + S] of the concatenation, S inputs and as many targets, so
// neighbours overlap by one token and every token but the first is a target once. For training the order of
// the documents is shuffled for each epoch, then the order of the samples; what remains after the last whole
// sample is left out of that epoch. Both shuffles are f(seed, epoch) of the original order.
//
// State: one global sample index, kept by the caller. Sample i is a pure function of (data, seq_len, seed,
// i), its epoch i / samples_per_epoch(). The global batch of a step is samples [index, index + batch size):
// no rank count enters.
//
// Memory: 16 bytes a document for the epoch in use (none without shuffle). Building it, on the first sample
// of an epoch, takes about 50 ns a document.
#pragma once

#include <cstdint>
#include <vector>

#include "src/data/megatron_index.h"

namespace yardmaster {

inline constexpr int32_t kIgnoreTarget = -1;

// Not thread-safe: Get() keeps the order of one epoch.
class SampleStream {
 public:
  // For training. Throws ConfigError for seq_len < 1, DataError when the data is too short for one sample.
  SampleStream(IndexedDataset data, int64_t seq_len, uint64_t seed, bool shuffle);

  // For evaluation: file order, and one more sample for the rest of the tokens, so that each of the tokens()
  // - 1 targets is met exactly once an epoch. Behind the end that sample holds token 0 with target
  // kIgnoreTarget: take means over the targets >= 0, never over samples.
  static SampleStream ForEvaluation(IndexedDataset data, int64_t seq_len);

  const IndexedDataset& data() const { return data_; }
  int64_t seq_len() const { return seq_len_; }
  int64_t samples_per_epoch() const { return samples_per_epoch_; }
  int64_t EpochOf(int64_t sample) const { return sample / samples_per_epoch_; }

  // Fills `tokens`, `targets` and, unless null, `positions_in_document` and `document_start`, all [S] int32.
  // document_start[t]: index within the sample where the document of token t begins; 0 if it began in an
  // earlier sample. positions_in_document[t] = t - document_start[t]: in [0, S), so it counts from the
  // beginning of the sample for a document that began earlier (rotary attention sees differences only). A
  // token behind the end of the data belongs to a document of its own that begins there.
  // Throws DataError for a token outside of the vocabulary.
  void Get(int64_t sample, int32_t* tokens, int32_t* targets, int32_t* positions_in_document,
           int32_t* document_start);

 private:
  SampleStream(IndexedDataset data, int64_t seq_len, uint64_t seed, bool shuffle, bool keep_tail);
  void LoadEpoch(int64_t epoch);
  // The k-th document of the concatenation and where it begins there.
  int64_t DocumentAt(int64_t k) const { return shuffle_ ? order_[static_cast<size_t>(k)] : k; }
  int64_t BeginOf(int64_t k) const {
    return shuffle_ ? begin_[static_cast<size_t>(k)] : data_.DocumentBegin(k);
  }
  int64_t FindDocument(int64_t position) const;

  IndexedDataset data_;
  int64_t seq_len_, samples_per_epoch_;
  uint64_t seed_;
  bool shuffle_;
  int64_t epoch_ = -1;           // of order_ and begin_; -1: none yet
  std::vector<int64_t> order_;   // [documents]
  std::vector<int64_t> begin_;   // [documents]
  std::vector<int32_t> window_;  // [S + 1]
};

}  // namespace yardmaster
