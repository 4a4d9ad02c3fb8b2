#include "src/data/packing.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "src/base/check.h"
#include "src/base/error.h"
#include "src/base/philox.h"
#include "src/base/strings.h"
#include "src/data/shuffle.h"

namespace yardmaster {
namespace {

// A stream of random numbers for each use and epoch.
uint64_t EpochStream(const char* use, int64_t epoch) { return StreamOf(use) + static_cast<uint64_t>(epoch); }

}  // namespace

SampleStream::SampleStream(IndexedDataset data, int64_t seq_len, uint64_t seed, bool shuffle)
    : SampleStream(std::move(data), seq_len, seed, shuffle, /*keep_tail=*/false) {}

SampleStream SampleStream::ForEvaluation(IndexedDataset data, int64_t seq_len) {
  return SampleStream(std::move(data), seq_len, /*seed=*/0, /*shuffle=*/false, /*keep_tail=*/true);
}

SampleStream::SampleStream(IndexedDataset data, int64_t seq_len, uint64_t seed, bool shuffle, bool keep_tail)
    : data_(std::move(data)), seq_len_(seq_len), seed_(seed), shuffle_(shuffle) {
  if (seq_len < 1 || seq_len >= std::numeric_limits<int32_t>::max()) {
    throw ConfigError(StrCat("a sequence length of ", seq_len, " is impossible"), "",
                      "it must be at least 1 and fit 31 bits");
  }
  const int64_t least = keep_tail ? 2 : seq_len + 1;
  if (data_.tokens() < least) {
    throw DataError(StrCat("holds ", data_.tokens(), " tokens; one sample of sequence length ", seq_len,
                           " needs ", least),
                    data_.bin_path(),
                    keep_tail ? "use a larger data set" : "use more data or a shorter sequence");
  }
  const int64_t targets = data_.tokens() - 1;
  samples_per_epoch_ = targets / seq_len + (keep_tail && targets % seq_len != 0 ? 1 : 0);
  window_.resize(static_cast<size_t>(seq_len) + 1);
}

void SampleStream::LoadEpoch(int64_t epoch) {
  if (epoch == epoch_) return;
  order_ = ShuffledOrder(data_.documents(), seed_, EpochStream("data.documents", epoch));
  begin_.resize(order_.size());
  int64_t position = 0;
  for (size_t k = 0; k < order_.size(); ++k) {
    begin_[k] = position;
    position += data_.DocumentTokens(order_[k]);
  }
  YM_CHECK_EQ(position, data_.tokens());
  epoch_ = epoch;
}

// The last document that begins at or before `position`: it holds it, since empty ones begin where the next
// does.
int64_t SampleStream::FindDocument(int64_t position) const {
  int64_t low = 0, high = data_.documents();
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (BeginOf(middle) <= position ? low : high) = middle;
  }
  return low;
}

void SampleStream::Get(int64_t sample, int32_t* tokens, int32_t* targets, int32_t* positions_in_document,
                       int32_t* document_start) {
  YM_CHECK_GE(sample, 0, "sample");
  int64_t place = sample % samples_per_epoch_;
  if (shuffle_) {
    const int64_t epoch = EpochOf(sample);
    LoadEpoch(epoch);
    place = ShuffledIndex(place, samples_per_epoch_, seed_, EpochStream("data.samples", epoch));
  }
  const int64_t begin = place * seq_len_;
  const int64_t count = std::min(seq_len_ + 1, data_.tokens() - begin);  // less than S + 1 only at the tail

  const auto mark = [&](int64_t from, int64_t to, int64_t start) {
    for (int64_t t = from; t < std::min(to, seq_len_); ++t) {
      if (document_start != nullptr) document_start[t] = static_cast<int32_t>(start);
      if (positions_in_document != nullptr) positions_in_document[t] = static_cast<int32_t>(t - start);
    }
  };
  int64_t k = FindDocument(begin);
  for (int64_t done = 0; done < count; ++k) {
    const int64_t document = DocumentAt(k), document_begin = BeginOf(k);
    const int64_t skip = begin + done - document_begin;  // tokens of it that lie in earlier samples
    const int64_t n = std::min(count - done, data_.DocumentTokens(document) - skip);
    data_.Read(data_.DocumentBegin(document) + skip, n, window_.data() + done);
    mark(done, done + n, std::max<int64_t>(0, document_begin - begin));
    done += n;
  }
  std::fill(window_.begin() + count, window_.end(), 0);
  mark(count, seq_len_, count);

  std::copy_n(window_.begin(), seq_len_, tokens);
  std::copy_n(window_.begin() + 1, seq_len_, targets);
  std::fill(targets + (count - 1), targets + seq_len_, kIgnoreTarget);
}

}  // namespace yardmaster
