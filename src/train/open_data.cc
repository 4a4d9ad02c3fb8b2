#include "src/train/open_data.h"

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

IndexedDataset Open(const std::string& key, const std::string& prefix, int64_t vocab_size) {
  const std::string idx = DatasetPrefix(prefix) + ".idx";
  if (!PathExists(idx))
    throw DataError(StrCat(key, " = ", prefix, ": there is no such data set"), idx,
                    "scripts/train.sh makes the default one; yardmaster tokenize --out PREFIX PATH... makes "
                    "one of your files; Megatron "
                    ".bin/.idx files work as they are");
  return IndexedDataset(prefix, vocab_size);
}

}  // namespace

SampleStream OpenValidation(const Config& config) {
  return SampleStream::ForEvaluation(Open("data.validation", config.data.validation, config.model.vocab_size),
                                     config.train.sequence_length);
}

OpenedData OpenData(const Config& config, DataFingerprints* fingerprints) {
  const int64_t S = config.train.sequence_length;
  OpenedData data{SampleStream(Open("data.train", config.data.train, config.model.vocab_size), S,
                               static_cast<uint64_t>(config.data.seed), config.data.shuffle),
                  std::nullopt};
  if (!config.data.validation.empty()) data.validation = OpenValidation(config);
  if (fingerprints) {
    fingerprints->train = FingerprintDataset(config.data.train);
    if (data.validation) fingerprints->validation = FingerprintDataset(config.data.validation);
  }
  return data;
}

std::string DescribeData(const Config& config, const SampleStream& train, const SampleStream* validation,
                         const DataFingerprints& fingerprints) {
  const auto row = [](const char* label, const std::string& text) {
    return StrFormat("  %-12s %s\n", label, text.c_str());
  };
  const auto size = [](const SampleStream& s) {
    return StrCat(HumanCount(static_cast<double>(s.data().tokens())), " tokens in ", s.data().documents(),
                  " documents, ", s.samples_per_epoch(), " samples");
  };
  std::string out = row("data", StrCat(config.data.train, ": ", size(train), ", sha256 ",
                                       fingerprints.train.bin.sha256.substr(0, 16)));
  if (validation) out += row("validation", StrCat(config.data.validation, ": ", size(*validation)));
  return out;
}

}  // namespace yardmaster
