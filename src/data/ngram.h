// File: src/data/ngram.h
//
// The bars that a model must pass: held-out entropy, in nats per token, of a bigram and a trigram table over
// bytes fitted on the training part.
//
// Each table is smoothed towards the next shorter one by a Dirichlet prior of weight k (MacKay and Peto, "A
// hierarchical Dirichlet language model", 1995):
//   p0(c)     = 1 / V
//   p1(c)     = (n(c)   + k1 p0(c))     / (n     + k1)         k1 = 1
//   p2(c|b)   = (n(bc)  + k2 p1(c))     / (n(b)  + k2)
//   p3(c|ab)  = (n(abc) + k3 p2(c|b))   / (n(ab) + k3)
// k2 and then k3 are the best of kNgramGrid on a slice of the training part: training documents 0, 10, 20,
// ..., up to kNgramSliceTokens tokens, with the tables fitted on the other training documents. The slice is
// added before the held-out part is looked at. Where the slice leaves nothing to fit or to try, k = 1.
//
// Contexts do not reach over a document's beginning: its first token is predicted from (end, end). The mean
// is over every held-out token, ends of documents included, but the first one: exactly the targets of
// SampleStream::ForEvaluation (packing.h), so that the number stands beside a validation loss.
//
// Memory: 140 MB of counts. Time: about 10 to 20 ns a token.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "src/data/megatron_index.h"

namespace yardmaster {

inline constexpr std::array<double, 11> kNgramGrid = {0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000};
inline constexpr int64_t kNgramSliceTokens = int64_t{4} << 20;

struct NgramBars {
  double bigram = 0, trigram = 0;      // nats per token
  double bigram_k = 1, trigram_k = 1;  // chosen smoothing
  int64_t targets = 0;                 // tokens that the means are over
};

// Counts of n-grams of byte tokens and the smoothed probabilities above.
class NgramTables {
 public:
  NgramTables();
  void Add(int a, int b, int c);  // token c behind a, b
  double Unigram(int c) const;
  double Bigram(int b, int c, double k) const;
  // `shorter` is Bigram(b, c, k2), which callers with several k compute once.
  double Trigram(int a, int b, int c, double k, double shorter) const;

 private:
  uint64_t tokens_ = 0;
  std::vector<uint64_t> count_C_, count_BC_, count_ABC_;  // [V], [V, V], [V, V, V]
  std::vector<uint64_t> context_B_, context_AB_;          // [V], [V, V]: sums over C of the counts above
};

// Both data sets hold byte tokens (byte_tokenizer.h). Throws DataError when there is no training token or no
// held-out target.
NgramBars ComputeNgramBars(const IndexedDataset& train, const IndexedDataset& heldout);

}  // namespace yardmaster
