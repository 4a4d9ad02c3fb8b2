// A hundred and more broken data sets: none crashes the reader, and none is taken for what it is not.
#include <algorithm>
#include <cstring>
#include <random>

#include "src/data/fingerprint.h"
#include "src/data/megatron_index.h"
#include "src/data/packing.h"
#include "tests/catch.h"
#include "tests/data/data_test_util.h"

namespace yardmaster {
namespace {

using testing::DataErrorOf;
using testing::Documents;
using testing::HasText;
using testing::TempDir;
using testing::WriteBytes;
using testing::WriteDataset;

constexpr int64_t kVocab = 257;

struct Files {
  std::string idx, bin;
};

void PutRandom(std::string& bytes, size_t at, size_t width, std::mt19937& random) {
  // Small, negative, huge and arbitrary numbers all occur.
  const uint64_t choices[] = {0,
                              1,
                              random() % 64,
                              ~uint64_t{0},
                              uint64_t{1} << 31,
                              uint64_t{1} << 63,
                              ~uint64_t{0} >> 1,
                              uint64_t{random()} << 32 | random()};
  const uint64_t value = choices[random() % 8];
  std::memcpy(bytes.data() + at, &value, width);
}

// One mutation of one of the two files; returns what it was.
std::string Mutate(Files& files, int documents, std::mt19937& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const size_t lengths = 34, offsets = lengths + 4 * static_cast<size_t>(documents);
  const size_t indices = offsets + 8 * static_cast<size_t>(documents);
  switch (below(9)) {
    case 0:
      files.idx.resize(below(files.idx.size()));
      return "idx cut";
    case 1:
      files.bin.resize(below(files.bin.size()));
      return "bin cut";
    case 2: {
      std::string tail(1 + below(40), '\0');
      for (char& c : tail) c = static_cast<char>(1 + below(255));
      (below(2) == 0 ? files.idx : files.bin) += tail;
      return "longer";
    }
    case 3:
      files.idx[below(34)] ^= static_cast<char>(1 << below(8));
      return "bit of the header";
    case 4:
      PutRandom(files.idx, below(2) == 0 ? 18 : 26, 8, random);
      return "count";
    case 5:
      PutRandom(files.idx, lengths + 4 * below(static_cast<size_t>(documents)), 4, random);
      return "length";
    case 6:
      PutRandom(files.idx, offsets + 8 * below(static_cast<size_t>(documents)), 8, random);
      return "offset";
    case 7:
      PutRandom(files.idx, indices + 8 * below(static_cast<size_t>(documents) + 1), 8, random);
      return "document index";
    default:
      files.bin[below(files.bin.size())] ^= static_cast<char>(1 << below(8));
      return "bit of a token";
  }
}

// Opens the data set and takes every sample of an epoch.
void UseAll(const std::string& prefix) {
  constexpr int64_t kSequence = 8;
  SampleStream stream(IndexedDataset(prefix, kVocab), kSequence, 1, /*shuffle=*/true);
  int32_t tokens[kSequence], targets[kSequence], positions[kSequence], starts[kSequence];
  for (int64_t i = 0; i < stream.samples_per_epoch(); ++i) {
    stream.Get(i, tokens, targets, positions, starts);
    for (const int32_t token : tokens) CHECK((token >= 0 && token < kVocab));
  }
  std::vector<int32_t> all(static_cast<size_t>(stream.data().tokens()));
  stream.data().Read(0, stream.data().tokens(), all.data());
}

bool AllInVocabulary(const std::string& bin) {
  for (size_t i = 0; i + 1 < bin.size(); i += 2) {
    const int token = static_cast<unsigned char>(bin[i]) | static_cast<unsigned char>(bin[i + 1]) << 8;
    if (token >= kVocab) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("mutated data sets are refused by name, or differ in token values alone") {
  const TempDir dir;
  const std::string prefix = dir / "mutant";
  std::mt19937 random(20240607);
  Documents documents(7);
  for (auto& document : documents) {
    document.resize(1 + random() % 30);
    for (int32_t& token : document) token = static_cast<int32_t>(random() % kVocab);
  }
  WriteDataset(prefix, documents);
  const Files original = {ReadFile(prefix + ".idx"), ReadFile(prefix + ".bin")};
  const DatasetFingerprint fingerprint = FingerprintDataset(prefix);
  UseAll(prefix);

  int refused = 0, accepted = 0;
  while (refused + accepted < 300) {
    Files mutant = original;
    std::string kind = Mutate(mutant, 7, random);
    const bool whole = mutant.idx.size() >= original.idx.size() && mutant.bin.size() >= original.bin.size();
    if (whole && random() % 4 == 0) kind += " + " + Mutate(mutant, 7, random);
    if (mutant.idx == original.idx && mutant.bin == original.bin) continue;
    CAPTURE(kind, refused, accepted);
    WriteBytes(prefix + ".idx", mutant.idx);
    WriteBytes(prefix + ".bin", mutant.bin);
    const std::string message = DataErrorOf([&] { UseAll(prefix); });
    const bool values_only =
        mutant.idx == original.idx && mutant.bin.size() == original.bin.size() && AllInVocabulary(mutant.bin);
    if (values_only) {
      CHECK(message == "");
      ++accepted;
    } else {
      CHECK_THAT(message, HasText(prefix + ".idx") || HasText(prefix + ".bin"));
      ++refused;
    }
    const std::string changed =
        DataErrorOf([&] { CheckSameDataset(fingerprint, FingerprintDataset(prefix)); });
    CHECK((changed.find(prefix + ".idx: ") != std::string::npos) == (mutant.idx != original.idx));
    CHECK((changed.find(prefix + ".bin: ") != std::string::npos) == (mutant.bin != original.bin));
  }
  CHECK(refused >= 100);
  CHECK(accepted >= 1);
}

TEST_CASE("garbage of every length is refused") {
  const TempDir dir;
  const std::string prefix = dir / "garbage";
  WriteDataset(prefix, {{1, 2, 3}, {4, 5}});
  const std::string header = ReadFile(prefix + ".idx").substr(0, 18);
  std::mt19937 random(7);
  for (size_t length = 0; length < 300; ++length) {
    CAPTURE(length);
    std::string idx(length, '\0');
    for (char& c : idx) c = static_cast<char>(random() % 256);
    WriteBytes(prefix + ".idx", idx);
    CHECK_THAT(DataErrorOf([&] { UseAll(prefix); }), HasText("garbage.idx"));
    // Behind a good magic, version and type.
    idx.replace(0, std::min(length, header.size()), header.substr(0, length));
    WriteBytes(prefix + ".idx", idx);
    CHECK_THAT(DataErrorOf([&] { UseAll(prefix); }), HasText("garbage.idx"));
  }
}

}  // namespace yardmaster
