#include "src/data/ngram.h"

#include <cmath>
#include <map>
#include <random>

#include "src/data/byte_tokenizer.h"
#include "tests/catch.h"
#include "tests/data/data_test_util.h"

namespace yardmaster {
namespace {

using testing::DataErrorOf;
using testing::Documents;
using testing::HasText;
using testing::TempDir;
using testing::WriteDataset;

// Words of a small vocabulary; each document ends with the end-of-document token.
Documents RandomText(int count, uint32_t seed) {
  const char* words[] = {"moe ", "expert ", "router", "\n", "int ", "return 0;", "(x, y)", "\xc3\xa9", "zz"};
  std::mt19937 random(seed);
  Documents documents;
  for (int i = 0; i < count; ++i) {
    std::string text;
    const size_t pieces = 1 + random() % 60;
    for (size_t k = 0; k < pieces; ++k) text += words[random() % 9];
    documents.push_back(EncodeBytes(text));
    documents.back().push_back(kByteEndOfDocument);
  }
  return documents;
}

// The formulas of ngram.h with lists of tokens as keys: slow, and nothing shared with the tables.
class BruteForce {
 public:
  void Add(const std::vector<int32_t>& document) {
    const std::vector<int32_t> padded = Padded(document);
    for (size_t i = 2; i < padded.size(); ++i) {
      for (size_t order = 1; order <= 3; ++order) {
        const auto last = padded.begin() + static_cast<int64_t>(i) + 1,
                   first = last - static_cast<int64_t>(order);
        ++gram_[{first, last}];
        ++context_[{first, last - 1}];
      }
    }
  }
  static std::vector<int32_t> Padded(const std::vector<int32_t>& document) {
    std::vector<int32_t> padded = {256, 256};
    padded.insert(padded.end(), document.begin(), document.end());
    return padded;
  }
  // k[n] smooths grams of n + 1 tokens.
  double Probability(const std::vector<int32_t>& gram, const std::vector<double>& k) const {
    if (gram.empty()) return 1.0 / 257;
    const double prior = Probability({gram.begin() + 1, gram.end()}, k);
    return ProbabilityFrom(gram, k, prior);
  }
  double MeanNats(const Documents& documents, size_t order, const std::vector<double>& k,
                  bool skip_first) const {
    double nats = 0;
    int64_t n = 0;
    for (const auto& document : documents) {
      const std::vector<int32_t> padded = Padded(document);
      for (size_t i = 2; i < padded.size(); ++i) {
        if (skip_first && &document == &documents.front() && i == 2) continue;
        const auto last = padded.begin() + static_cast<int64_t>(i) + 1;
        nats -= std::log(Probability({last - static_cast<int64_t>(order), last}, k));
        ++n;
      }
    }
    return nats / static_cast<double>(n);
  }

 private:
  double ProbabilityFrom(const std::vector<int32_t>& gram, const std::vector<double>& k, double prior) const {
    const double weight = k[gram.size() - 1];
    const auto count = [](const auto& map, const std::vector<int32_t>& key) {
      const auto found = map.find(key);
      return found == map.end() ? 0.0 : found->second;
    };
    return (count(gram_, gram) + weight * prior) / (count(context_, {gram.begin(), gram.end() - 1}) + weight);
  }
  std::map<std::vector<int32_t>, double> gram_, context_;
};

}  // namespace

// The recursion above drops the oldest context token first: p3(c|ab) falls back on p2(c|b), that on p1(c).
TEST_CASE("bars equal a brute-force computation") {
  const TempDir dir;
  const Documents train = RandomText(37, 1), heldout = RandomText(9, 2);
  WriteDataset(dir / "train", train);
  WriteDataset(dir / "heldout", heldout);
  const NgramBars bars =
      ComputeNgramBars(IndexedDataset(dir / "train", 257), IndexedDataset(dir / "heldout", 257));

  BruteForce rest, whole;
  Documents slice;
  for (size_t d = 0; d < train.size(); ++d) {
    whole.Add(train[d]);
    if (d % 10 == 0) {
      slice.push_back(train[d]);
    } else {
      rest.Add(train[d]);
    }
  }
  std::vector<double> k = {1, 0, 0};
  for (const size_t order : {size_t{2}, size_t{3}}) {
    double best = 1e300, best_k = 0;
    for (const double candidate : kNgramGrid) {
      k[order - 1] = candidate;
      const double nats = rest.MeanNats(slice, order, k, false);
      if (nats < best) best = nats, best_k = candidate;
    }
    k[order - 1] = best_k;
  }
  CHECK(bars.bigram_k == k[1]);
  CHECK(bars.trigram_k == k[2]);
  CHECK(bars.bigram == Approx(whole.MeanNats(heldout, 2, k, true)).epsilon(1e-12));
  CHECK(bars.trigram == Approx(whole.MeanNats(heldout, 3, k, true)).epsilon(1e-12));
  CHECK(bars.targets == static_cast<int64_t>(testing::Concatenated(heldout).size()) - 1);
  CHECK(bars.trigram < bars.bigram);
  CHECK(bars.bigram < std::log(257.0));
}

TEST_CASE("probabilities sum to one, seen or unseen") {
  NgramTables tables;
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    tables.Add(static_cast<int>(random() % 4), static_cast<int>(random() % 4),
               static_cast<int>(random() % 257));
  }
  for (const int a : {0, 3, 200}) {
    for (const double k : {0.1, 30.0}) {
      double unigram = 0, bigram = 0, trigram = 0;
      for (int c = 0; c < 257; ++c) {
        unigram += tables.Unigram(c);
        bigram += tables.Bigram(a, c, k);
        trigram += tables.Trigram(a, 1, c, k, tables.Bigram(1, c, k));
        CHECK(tables.Trigram(a, 1, c, k, tables.Bigram(1, c, k)) > 0);
      }
      CHECK(unigram == Approx(1).epsilon(1e-12));
      CHECK(bigram == Approx(1).epsilon(1e-12));
      CHECK(trigram == Approx(1).epsilon(1e-12));
    }
  }
}

TEST_CASE("a single training document, and data with nothing to predict") {
  const TempDir dir;
  WriteDataset(dir / "train", {{97, 98, 97, 98, 97, 256}});
  WriteDataset(dir / "heldout", {{97, 98, 256}});
  const IndexedDataset train(dir / "train", 257), heldout(dir / "heldout", 257);
  const NgramBars bars = ComputeNgramBars(train, heldout);
  CHECK(bars.bigram_k == 1);
  CHECK(bars.trigram_k == 1);
  CHECK(bars.targets == 2);
  // By hand: n(98) = 2 of 6, n(97, 98) = 2 of 3; n(256) = 1 of 6, n(98, 256) = 0 of 2.
  const double p98 = (2 + 1.0 / 257) / 7, p256 = (1 + 1.0 / 257) / 7;
  CHECK(bars.bigram == Approx(-(std::log((2 + p98) / 4) + std::log((0 + p256) / 3)) / 2).epsilon(1e-12));

  WriteDataset(dir / "one", {{256}});
  CHECK_THAT(DataErrorOf([&] { ComputeNgramBars(train, IndexedDataset(dir / "one", 257)); }),
             HasText("one.bin"));
  WriteDataset(dir / "none", {});
  CHECK_THAT(DataErrorOf([&] { ComputeNgramBars(IndexedDataset(dir / "none", 257), heldout); }),
             HasText("none.bin"));
}

}  // namespace yardmaster
