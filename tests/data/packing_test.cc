#include "src/data/packing.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/base/philox.h"
#include "src/data/shuffle.h"
#include "tests/catch.h"
#include "tests/data/data_test_util.h"

namespace yardmaster {
namespace {

using testing::DataErrorOf;
using testing::Documents;
using testing::HasText;
using testing::NumberedDocuments;
using testing::TempDir;
using testing::WriteDataset;

constexpr int64_t kVocab = 100'000;

struct Sample {
  std::vector<int32_t> tokens, targets, positions, starts;
  bool operator==(const Sample&) const = default;
};

Sample Take(SampleStream& stream, int64_t index) {
  const std::vector<int32_t> unset(static_cast<size_t>(stream.seq_len()), -77);
  Sample s = {unset, unset, unset, unset};
  stream.Get(index, s.tokens.data(), s.targets.data(), s.positions.data(), s.starts.data());
  return s;
}

std::vector<Sample> TakeEpoch(SampleStream& stream, int64_t epoch) {
  std::vector<Sample> samples;
  const int64_t n = stream.samples_per_epoch();
  for (int64_t i = epoch * n; i < (epoch + 1) * n; ++i) samples.push_back(Take(stream, i));
  return samples;
}

}  // namespace

TEST_CASE("samples in file order overlap by one token and know their documents") {
  const TempDir dir;
  WriteDataset(dir / "d", {{1, 2, 9}, {3, 4, 5, 6, 9}, {9}, {7, 8}}, TokenType::kU16);  // 11 tokens
  SampleStream stream(IndexedDataset(dir / "d", 10), 4, 0, /*shuffle=*/false);
  REQUIRE(stream.samples_per_epoch() == 2);
  CHECK(Take(stream, 0) == Sample{{1, 2, 9, 3}, {2, 9, 3, 4}, {0, 1, 2, 0}, {0, 0, 0, 3}});
  CHECK(Take(stream, 1) == Sample{{4, 5, 6, 9}, {5, 6, 9, 9}, {0, 1, 2, 3}, {0, 0, 0, 0}});
  CHECK(Take(stream, 2) == Take(stream, 0));
  CHECK(stream.EpochOf(1) == 0);
  CHECK(stream.EpochOf(2) == 1);

  int32_t tokens[4], targets[4];
  stream.Get(1, tokens, targets, nullptr, nullptr);
  CHECK(tokens[0] == 4);
  CHECK(targets[3] == 9);
}

TEST_CASE("one token more or less at the end of the epoch") {
  const TempDir dir;
  for (int32_t n = 9; n <= 13; ++n) {
    WriteDataset(dir / "d", {std::vector<int32_t>(static_cast<size_t>(n), 1)});
    CHECK(SampleStream(IndexedDataset(dir / "d", 10), 4, 0, true).samples_per_epoch() == (n == 13 ? 3 : 2));
  }
}

TEST_CASE("evaluation meets each target once and pads without counting") {
  const TempDir dir;
  WriteDataset(dir / "d", {{1, 2, 9}, {3, 4, 5, 6, 9}, {9}, {7, 8}}, TokenType::kU16);
  SampleStream stream = SampleStream::ForEvaluation(IndexedDataset(dir / "d", 10), 4);
  REQUIRE(stream.samples_per_epoch() == 3);
  CHECK(Take(stream, 2) == Sample{{9, 7, 8, 0}, {7, 8, -1, -1}, {0, 0, 1, 0}, {0, 1, 1, 3}});

  for (int count = 1; count < 30; ++count) {
    const Documents documents = NumberedDocuments(count, 7, static_cast<uint32_t>(count));
    const std::vector<int32_t> all = testing::Concatenated(documents);
    if (all.size() < 2) continue;
    WriteDataset(dir / "n", documents);
    SampleStream numbered = SampleStream::ForEvaluation(IndexedDataset(dir / "n", kVocab), 5);
    std::vector<int32_t> targets;
    for (const Sample& sample : TakeEpoch(numbered, 0)) {
      for (size_t t = 0; t < 5; ++t) {
        if (sample.targets[t] == kIgnoreTarget) continue;
        CHECK(sample.targets[t] == sample.tokens[t] + 1);
        targets.push_back(sample.targets[t]);
      }
    }
    CHECK(targets == std::vector<int32_t>(all.begin() + 1, all.end()));
  }
}

TEST_CASE("data too small for one sample, and impossible lengths") {
  const TempDir dir;
  WriteDataset(dir / "d", {{1, 2, 3}, {4}});
  CHECK(SampleStream(IndexedDataset(dir / "d", 10), 3, 0, true).samples_per_epoch() == 1);
  CHECK_THAT(DataErrorOf([&] { SampleStream(IndexedDataset(dir / "d", 10), 4, 0, true); }),
             HasText("d.bin") && HasText("holds 4 tokens") && HasText("needs 5"));
  CHECK(SampleStream::ForEvaluation(IndexedDataset(dir / "d", 10), 100).samples_per_epoch() == 1);
  for (const int64_t length : {int64_t{0}, int64_t{-1}, int64_t{1} << 31}) {
    try {
      SampleStream(IndexedDataset(dir / "d", 10), length, 0, true);
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kConfig);
    }
  }
  WriteDataset(dir / "d", {{1}});
  CHECK_THAT(DataErrorOf([&] { SampleStream::ForEvaluation(IndexedDataset(dir / "d", 10), 4); }),
             HasText("holds 1 tokens"));
}

TEST_CASE("a shuffled epoch is a concatenation of whole documents cut into samples, each met once") {
  const TempDir dir;
  const Documents documents = NumberedDocuments(200, 20, 3);
  const std::vector<int32_t> all = testing::Concatenated(documents);
  std::map<int32_t, int32_t> first_of;  // token -> first token of its document
  std::set<int32_t> lasts;
  for (const auto& document : documents) {
    for (const int32_t token : document) first_of[token] = document[0];
    lasts.insert(document.back());
  }
  WriteDataset(dir / "d", documents, TokenType::kI32);
  SampleStream stream(IndexedDataset(dir / "d", kVocab), 16, 42, /*shuffle=*/true);
  const int64_t n = stream.samples_per_epoch();
  REQUIRE(n == static_cast<int64_t>(all.size() - 1) / 16);

  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int32_t> targets, inputs;
    std::map<int32_t, std::vector<int32_t>> by_first_token;
    for (const Sample& s : TakeEpoch(stream, epoch)) {
      for (size_t t = 0; t < 16; ++t) {
        CHECK(inputs.insert(s.tokens[t]).second);
        CHECK(targets.insert(s.targets[t]).second);
        if (t + 1 < 16) CHECK(s.targets[t] == s.tokens[t + 1]);
        // The next token is the document's next, or the first of another document.
        if (lasts.count(s.tokens[t]) == 0) {
          CHECK(s.targets[t] == s.tokens[t] + 1);
        } else {
          CHECK(first_of[s.targets[t]] == s.targets[t]);
        }
        const size_t start = static_cast<size_t>(s.starts[t]);
        CHECK(s.positions[t] == static_cast<int32_t>(t - start));
        CHECK(first_of[s.tokens[start]] == first_of[s.tokens[t]]);
        CHECK((start == 0 || first_of[s.tokens[start]] == s.tokens[start]));
      }
      by_first_token[s.tokens[0]] = s.targets;
    }
    CHECK(targets.size() == static_cast<size_t>(16 * n));
    // All samples but the last of the concatenation are followed by the one that begins with their last
    // target.
    int64_t followed = 0;
    for (const auto& [first, sample_targets] : by_first_token)
      followed += by_first_token.count(sample_targets[15]);
    CHECK(followed == n - 1);
  }
}

TEST_CASE("the sample index is the whole state") {
  const TempDir dir;
  WriteDataset(dir / "d", NumberedDocuments(60, 20, 8), TokenType::kI32);
  const auto make = [&](uint64_t seed) {
    return SampleStream(IndexedDataset(dir / "d", kVocab), 8, seed, true);
  };
  SampleStream stream = make(1), same = make(1), other = make(2);
  const int64_t n = stream.samples_per_epoch();
  const std::vector<Sample> first = TakeEpoch(stream, 0), second = TakeEpoch(stream, 1);

  CHECK(TakeEpoch(same, 0) == first);
  CHECK(TakeEpoch(other, 0) != first);
  CHECK(second != first);
  // Not only the samples' order: the cuts lie elsewhere.
  const auto sorted = [](std::vector<Sample> samples) {
    std::sort(samples.begin(), samples.end(),
              [](const Sample& a, const Sample& b) { return a.tokens < b.tokens; });
    return samples;
  };
  CHECK(sorted(second) != sorted(first));
  // And the samples do not come in the order of the concatenation.
  int64_t in_order = 0;
  for (size_t i = 0; i + 1 < first.size(); ++i) in_order += first[i].targets[7] == first[i + 1].tokens[0];
  CHECK(in_order < n / 4);

  // Backwards, across epochs, and from a fresh stream at any index.
  SampleStream jumping = make(1);
  for (int64_t i = 2 * n - 1; i >= 0; i -= 7) {
    CHECK(Take(jumping, i) == (i < n ? first[static_cast<size_t>(i)] : second[static_cast<size_t>(i - n)]));
  }
  SampleStream late = make(1);
  CHECK(Take(late, n + 3) == second[3]);
  CHECK_NOTHROW(Take(late, n * 1'000'000'000'000));
  CHECK_THROWS_AS(Take(late, -1), InternalError);
}

TEST_CASE("documents without tokens are passed over") {
  const TempDir dir;
  IndexedDatasetWriter writer(dir / "d", TokenType::kU16);
  for (const int32_t token : {5, -1, -1, 6, 7, -1}) {  // -1: an empty document
    if (token >= 0) writer.Append(&token, 1);
    if (token < 0) writer.EndSequence();
    writer.EndDocument();
  }
  writer.Finish();
  writer.Publish();
  SampleStream plain(IndexedDataset(dir / "d", 10), 2, 0, false),
      shuffled(IndexedDataset(dir / "d", 10), 2, 0, true);
  CHECK(Take(plain, 0) == Sample{{5, 6}, {6, 7}, {0, 0}, {0, 1}});
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const Sample s = Take(shuffled, epoch);
    CHECK(std::set<int32_t>{s.tokens[0], s.tokens[1], s.targets[1]} == std::set<int32_t>{5, 6, 7});
    CHECK(s.starts == std::vector<int32_t>{0, 1});
  }
}

TEST_CASE("samples beyond token 2^31") {
  // 70 documents of 2^25 + 1 tokens: 2.3 billion, nearly all of it a hole in the file.
  const TempDir dir;
  const int64_t documents = 70, length = (int64_t{1} << 25) + 1, tokens = documents * length,
                seq_len = 100'000;
  std::string idx(megatron::kMagic, sizeof(megatron::kMagic));
  const auto append = [&](auto value) { idx.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  append(megatron::kVersion);
  append(static_cast<uint8_t>(TokenType::kU8));
  append(documents);
  append(documents + 1);
  for (int64_t d = 0; d < documents; ++d) append(static_cast<int32_t>(length));
  for (int64_t d = 0; d < documents; ++d) append(d * length);
  for (int64_t d = 0; d <= documents; ++d) append(d);
  testing::WriteBytes(dir / "d.idx", idx);
  const int fd = open((dir / "d.bin").c_str(), O_CREAT | O_WRONLY, 0600);
  REQUIRE(fd >= 0);
  REQUIRE(ftruncate(fd, tokens) == 0);
  for (int64_t d = 0; d < documents; ++d) {  // each document begins with its number + 1
    const uint8_t mark = static_cast<uint8_t>(d + 1);
    REQUIRE(pwrite(fd, &mark, 1, d * length) == 1);
  }
  REQUIRE(close(fd) == 0);

  SampleStream plain(IndexedDataset(dir / "d", 257), seq_len, 0, false);
  CHECK(plain.samples_per_epoch() == (tokens - 1) / seq_len);
  const int64_t begin = 69 * length;  // of the last document
  REQUIRE(begin > int64_t{1} << 31);
  const Sample s = Take(plain, begin / seq_len);
  CHECK(s.tokens[static_cast<size_t>(begin % seq_len)] == 70);
  CHECK(s.starts.back() == begin % seq_len);

  // The shuffled order puts other documents behind 2^31: each begins where the two permutations say.
  SampleStream shuffled(IndexedDataset(dir / "d", 257), seq_len, 5, true);
  const int64_t n = shuffled.samples_per_epoch();
  const std::vector<int64_t> order = ShuffledOrder(documents, 5, StreamOf("data.documents"));
  std::map<int64_t, int64_t> sample_of_place;
  for (int64_t i = 0; i < n; ++i) sample_of_place[ShuffledIndex(i, n, 5, StreamOf("data.samples"))] = i;
  for (int64_t k = 1; k < documents; ++k) {
    const Sample sample = Take(shuffled, sample_of_place.at(k * length / seq_len));
    const size_t offset = static_cast<size_t>(k * length % seq_len);
    CHECK(sample.tokens[offset] == order[static_cast<size_t>(k)] + 1);
    CHECK(sample.starts.back() == static_cast<int32_t>(offset));
  }
}

}  // namespace yardmaster
