#include "src/data/tokenize.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "src/base/check.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/hash.h"
#include "src/base/strings.h"
#include "src/data/byte_tokenizer.h"
#include "src/data/megatron_index.h"
#include "src/data/megatron_writer.h"
#include "src/data/ngram.h"

namespace yardmaster {
namespace {

namespace fs = std::filesystem;

struct Document {
  std::string path, sha256;
  int64_t bytes = 0;
  bool heldout = false;
};

const char* const kOutputs[] = {".train.bin", ".train.idx", ".heldout.bin", ".heldout.idx", ".json"};

std::string Sha256Of(const MappedFile& file) {
  Sha256 sha;
  sha.Update(file.data(), file.size());
  return sha.HexDigest();
}

// The first 52 bits of the hash as a number in [0, 1).
double HashFraction(const std::string& sha256) {
  return std::ldexp(static_cast<double>(std::strtoull(sha256.substr(0, 13).c_str(), nullptr, 16)), -52);
}

void AddDirectory(const std::string& root, std::vector<std::string>& files,
                  std::vector<std::string>& unreadable) {
  std::error_code error;
  std::vector<fs::path> pending = {root};
  while (!pending.empty()) {
    const fs::path directory = pending.back();
    pending.pop_back();
    fs::directory_iterator entries(directory, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      std::error_code status_error;  // a link that leads nowhere is reported when it is read
      const bool link = entries->is_symlink(status_error);
      if (entries->is_directory(status_error) && !link) {
        pending.push_back(entries->path());
      } else {  // a link to a directory too: it is reported, since what lies there may be meant
        files.push_back(entries->path().string());
      }
    }
    if (error) unreadable.push_back(StrCat(directory.string(), ": ", error.message()));
  }
}

// All files to look at, sorted and each once. Directories that cannot be listed go to `unreadable`.
std::vector<std::string> CollectFiles(const TokenizeOptions& options, std::vector<std::string>& unreadable) {
  std::vector<std::string> files;
  for (const std::string& path : options.paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) throw DataError("no such file or directory", path, "check the path");
    if (fs::is_directory(status)) {
      AddDirectory(path, files, unreadable);
    } else {
      files.push_back(path);
    }
  }
  if (!options.file_list.empty()) {
    for (std::string line : StrSplit(ReadFile(options.file_list), '\n')) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (!line.empty()) files.push_back(line);
    }
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

// Why a path cannot be a document, or "". Nothing is opened: opening a pipe would wait.
std::string WhyNotAFile(const std::string& path, const std::set<fs::path>& outputs) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return error.message();
  if (!fs::is_regular_file(status)) return "is not a regular file";
  if (outputs.count(fs::weakly_canonical(path, error)) != 0) return "is an output of this command";
  return "";
}

std::vector<Document> ReadDocuments(const TokenizeOptions& options, TokenizeResult& result) {
  std::set<fs::path> outputs;
  for (const char* suffix : kOutputs) {
    std::error_code error;
    outputs.insert(fs::weakly_canonical(options.out_prefix + suffix, error));
  }
  std::vector<Document> documents;
  std::set<std::string> seen;
  const std::vector<std::string> files = CollectFiles(options, result.unreadable);
  result.files = static_cast<int64_t>(files.size() + result.unreadable.size());
  for (const std::string& path : files) {
    const std::string reason = WhyNotAFile(path, outputs);
    if (!reason.empty()) {
      result.unreadable.push_back(StrCat(path, ": ", reason));
      continue;
    }
    try {
      const MappedFile file(path);
      if (file.size() == 0) {
        ++result.empty;
        continue;
      }
      std::string sha256 = Sha256Of(file);
      if (!seen.insert(sha256).second) {
        ++result.duplicates;
        continue;
      }
      documents.push_back({path, std::move(sha256), static_cast<int64_t>(file.size())});
    } catch (const Error& error) {
      result.unreadable.push_back(error.what());  // begins with the path
    }
  }
  return documents;
}

void ChooseHeldout(double fraction, std::vector<Document>& documents) {
  for (Document& d : documents) d.heldout = HashFraction(d.sha256) < fraction;
  const auto [smallest, largest] =
      std::minmax_element(documents.begin(), documents.end(),
                          [](const Document& a, const Document& b) { return a.sha256 < b.sha256; });
  smallest->heldout = true;
  largest->heldout = false;
}

// Throws DataError if the file is not what it was when it was hashed.
void AppendDocument(const Document& document, IndexedDatasetWriter& writer) {
  constexpr size_t kChunk = size_t{1} << 16;
  const MappedFile file(document.path);
  Sha256 sha;
  for (size_t begin = 0; begin < file.size(); begin += kChunk) {
    const std::string_view chunk(reinterpret_cast<const char*>(file.data()) + begin,
                                 std::min(kChunk, file.size() - begin));
    sha.Update(chunk);
    const std::vector<int32_t> tokens = EncodeBytes(chunk);
    writer.Append(tokens.data(), static_cast<int64_t>(tokens.size()));
  }
  if (sha.HexDigest() != document.sha256) {
    throw DataError("changed while it was being read", document.path,
                    "run the command again when nothing writes it");
  }
  writer.Append(&kByteEndOfDocument, 1);
  writer.EndDocument();
}

}  // namespace

TokenizeResult Tokenize(const TokenizeOptions& options) {
  if (options.out_prefix.empty()) throw ConfigError("no output prefix was given");
  if (options.paths.empty() && options.file_list.empty())
    throw ConfigError("no files to tokenize were given");
  if (!(options.heldout_fraction > 0 && options.heldout_fraction < 1)) {
    throw ConfigError(StrCat("the held-out fraction is ", options.heldout_fraction), "",
                      "it lies between 0 and 1");
  }
  for (const char* suffix : kOutputs) {
    const std::string path = options.out_prefix + suffix;
    if (!options.replace && PathExists(path))
      throw ConfigError("a data set is here already", path, "choose another --out, or replace it with --force");
  }
  TokenizeResult result;
  result.prefix = options.out_prefix;
  std::vector<Document> documents = ReadDocuments(options, result);
  if (documents.size() < 2) {
    throw DataError(
        StrCat("found ", documents.size(), " different documents in ", result.files, " files (",
               result.duplicates, " duplicates, ", result.empty, " empty, ", result.unreadable.size(),
               " unreadable); one to train on and one to hold out are needed"),
        "tokenize", "give more files, or cut one text into several");
  }
  ChooseHeldout(options.heldout_fraction, documents);

  DatasetInfo& info = result.info;
  info.tokenizer = kByteTokenizerName;
  info.vocab_size = kByteVocabSize;
  info.end_of_document = kByteEndOfDocument;
  IndexedDatasetWriter train(options.out_prefix + ".train", TokenType::kU16);
  IndexedDatasetWriter heldout(options.out_prefix + ".heldout", TokenType::kU16);
  Sha256 sha;
  for (const Document& document : documents) {
    AppendDocument(document, document.heldout ? heldout : train);
    sha.Update(StrCat(document.heldout ? "heldout " : "train ", document.sha256, "\n"));
    info.bytes += document.bytes;
  }
  info.sha256 = sha.HexDigest();
  info.train = {train.documents(), train.tokens()};
  info.heldout = {heldout.documents(), heldout.tokens()};
  train.Finish();
  heldout.Finish();

  // Without PREFIX.json there is no complete data set: it goes first and comes back last.
  const std::string json_path = options.out_prefix + ".json";
  if (std::filesystem::is_directory(json_path)) throw DataError("a directory stands where the data set's description goes", json_path, "choose another --out");
  RemoveTree(json_path);
  train.Publish();
  heldout.Publish();
  const NgramBars bars = ComputeNgramBars(IndexedDataset(options.out_prefix + ".train", kByteVocabSize),
                                          IndexedDataset(options.out_prefix + ".heldout", kByteVocabSize));
  info.bigram_nats = bars.bigram, info.trigram_nats = bars.trigram;
  info.bigram_k = bars.bigram_k, info.trigram_k = bars.trigram_k;
  WriteFileAtomically(json_path, DatasetInfoToJson(info));
  return result;
}

std::string TokenizeReport(const TokenizeResult& result) {
  constexpr size_t kListed = 10;
  const DatasetInfo& info = result.info;
  const auto part = [&](const char* name, const DatasetPart& p) {
    return StrFormat("%-9s %s.%s.{bin,idx}  %lld documents, %lld tokens\n", name, result.prefix.c_str(), name,
                     static_cast<long long>(p.documents), static_cast<long long>(p.tokens));
  };
  std::string out =
      StrCat("files     ", result.files, " looked at: ", info.train.documents + info.heldout.documents,
             " documents, ", result.duplicates, " exact duplicates, ", result.empty, " empty, ",
             result.unreadable.size(), " unreadable\n");
  for (size_t i = 0; i < std::min(kListed, result.unreadable.size()); ++i) {
    out += StrCat("          skipped ", result.unreadable[i], "\n");
  }
  if (result.unreadable.size() > kListed)
    out += StrCat("          and ", result.unreadable.size() - kListed, " more\n");
  out += StrCat("text      ", info.bytes, " bytes (", HumanBytes(static_cast<double>(info.bytes)), "), ",
                info.train.tokens + info.heldout.tokens, " tokens, vocabulary ", info.vocab_size, "\n");
  out += part("train", info.train) + part("heldout", info.heldout);
  out += StrCat("sha256    ", info.sha256, "\n");
  out += StrFormat("bars      held-out entropy, nats per token: bigram %.4f (k %g), trigram %.4f (k %g)\n",
                   info.bigram_nats, info.bigram_k, info.trigram_nats, info.trigram_k);
  return out;
}

}  // namespace yardmaster
