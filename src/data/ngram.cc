#include "src/data/ngram.h"

#include <algorithm>
#include <cmath>

#include "src/base/check.h"
#include "src/base/error.h"
#include "src/data/byte_tokenizer.h"

namespace yardmaster {
namespace {

constexpr size_t kV = static_cast<size_t>(kByteVocabSize);
constexpr int64_t kSliceEvery = 10;

size_t At(int a, int b) { return static_cast<size_t>(a) * kV + static_cast<size_t>(b); }
size_t At(int a, int b, int c) { return At(a, b) * kV + static_cast<size_t>(c); }

// Calls visit(a, b, c) for each token c of a document, a and b being the two before it or ends of document.
template <class F>
void ForEachTrigram(const IndexedDataset& data, int64_t document, F&& visit) {
  constexpr int64_t kChunk = 1 << 16;
  std::vector<int32_t> chunk(kChunk);
  int a = kByteEndOfDocument, b = kByteEndOfDocument;
  const int64_t end = data.DocumentBegin(document + 1);
  for (int64_t begin = data.DocumentBegin(document); begin < end; begin += kChunk) {
    const int64_t n = std::min(kChunk, end - begin);
    data.Read(begin, n, chunk.data());
    for (int64_t i = 0; i < n; ++i) {
      const int c = chunk[static_cast<size_t>(i)];
      visit(a, b, c);
      a = b, b = c;
    }
  }
}

void AddDocument(const IndexedDataset& data, int64_t document, NgramTables& tables) {
  ForEachTrigram(data, document, [&](int a, int b, int c) { tables.Add(a, b, c); });
}

// The training documents that choose the smoothing, ascending.
std::vector<int64_t> SliceDocuments(const IndexedDataset& train) {
  std::vector<int64_t> slice;
  int64_t tokens = 0;
  for (int64_t d = 0; d < train.documents() && train.documents() > 1; d += kSliceEvery) {
    tokens += train.DocumentTokens(d);
    if (tokens > kNgramSliceTokens && !slice.empty()) break;
    slice.push_back(d);
  }
  return slice;
}

double BestOfGrid(const std::array<double, kNgramGrid.size()>& log_likelihood) {
  return kNgramGrid[static_cast<size_t>(std::max_element(log_likelihood.begin(), log_likelihood.end()) -
                                        log_likelihood.begin())];
}

void ChooseSmoothing(const IndexedDataset& train, const std::vector<int64_t>& slice,
                     const NgramTables& tables, NgramBars& bars) {
  std::array<double, kNgramGrid.size()> log_likelihood{};
  for (const int64_t d : slice) {
    ForEachTrigram(train, d, [&](int, int b, int c) {
      for (size_t g = 0; g < kNgramGrid.size(); ++g) {
        log_likelihood[g] += std::log(tables.Bigram(b, c, kNgramGrid[g]));
      }
    });
  }
  bars.bigram_k = BestOfGrid(log_likelihood);
  log_likelihood.fill(0);
  for (const int64_t d : slice) {
    ForEachTrigram(train, d, [&](int a, int b, int c) {
      const double shorter = tables.Bigram(b, c, bars.bigram_k);
      for (size_t g = 0; g < kNgramGrid.size(); ++g) {
        log_likelihood[g] += std::log(tables.Trigram(a, b, c, kNgramGrid[g], shorter));
      }
    });
  }
  bars.trigram_k = BestOfGrid(log_likelihood);
}

}  // namespace

NgramTables::NgramTables()
    : count_C_(kV), count_BC_(kV * kV), count_ABC_(kV * kV * kV), context_B_(kV), context_AB_(kV * kV) {}

void NgramTables::Add(int a, int b, int c) {
  ++tokens_;
  ++count_C_[static_cast<size_t>(c)], ++count_BC_[At(b, c)], ++count_ABC_[At(a, b, c)];
  ++context_B_[static_cast<size_t>(b)], ++context_AB_[At(a, b)];
}

double NgramTables::Unigram(int c) const {
  return (static_cast<double>(count_C_[static_cast<size_t>(c)]) + 1.0 / static_cast<double>(kV)) /
         (static_cast<double>(tokens_) + 1.0);
}

double NgramTables::Bigram(int b, int c, double k) const {
  return (static_cast<double>(count_BC_[At(b, c)]) + k * Unigram(c)) /
         (static_cast<double>(context_B_[static_cast<size_t>(b)]) + k);
}

double NgramTables::Trigram(int a, int b, int c, double k, double shorter) const {
  return (static_cast<double>(count_ABC_[At(a, b, c)]) + k * shorter) /
         (static_cast<double>(context_AB_[At(a, b)]) + k);
}

NgramBars ComputeNgramBars(const IndexedDataset& train, const IndexedDataset& heldout) {
  YM_CHECK(train.vocab_size() == kByteVocabSize && heldout.vocab_size() == kByteVocabSize, "byte tokens");
  if (train.tokens() < 1) throw DataError("holds no tokens to fit tables on", train.bin_path());
  if (heldout.tokens() < 2)
    throw DataError("holds no token with one before it to predict", heldout.bin_path());

  NgramTables tables;
  NgramBars bars;
  const std::vector<int64_t> slice = SliceDocuments(train);
  for (int64_t d = 0; d < train.documents(); ++d) {
    if (!std::binary_search(slice.begin(), slice.end(), d)) AddDocument(train, d, tables);
  }
  if (!slice.empty()) ChooseSmoothing(train, slice, tables, bars);
  for (const int64_t d : slice) AddDocument(train, d, tables);

  double bigram = 0, trigram = 0;
  bool first = true;
  for (int64_t d = 0; d < heldout.documents(); ++d) {
    ForEachTrigram(heldout, d, [&](int a, int b, int c) {
      if (first) {
        first = false;
        return;
      }
      const double shorter = tables.Bigram(b, c, bars.bigram_k);
      bigram -= std::log(shorter);
      trigram -= std::log(tables.Trigram(a, b, c, bars.trigram_k, shorter));
    });
  }
  bars.targets = heldout.tokens() - 1;
  bars.bigram = bigram / static_cast<double>(bars.targets);
  bars.trigram = trigram / static_cast<double>(bars.targets);
  return bars;
}

}  // namespace yardmaster
