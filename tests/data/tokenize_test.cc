#include "src/data/tokenize.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "src/base/hash.h"
#include "src/data/byte_tokenizer.h"
#include "src/data/dataset_info.h"
#include "src/data/megatron_index.h"
#include "tests/catch.h"
#include "tests/data/data_test_util.h"

namespace yardmaster {
namespace {

using testing::DataErrorOf;
using testing::HasText;
using testing::TempDir;
using testing::WriteBytes;

const char* const kOutputs[] = {".train.bin", ".train.idx", ".heldout.bin", ".heldout.idx", ".json"};

// 60 different files in three directories, one of them with every byte value.
std::map<std::string, std::string> MakeTree(const std::string& root) {
  std::map<std::string, std::string> files;
  for (int i = 0; i < 60; ++i) {
    std::string text = StrCat("// file ", i, "\n");
    for (int k = 0; k < i; ++k) text += StrCat("int x", k * i, " = ", k, ";\n");
    files[StrFormat("%s/%c/%02d.h", root.c_str(), 'a' + i % 3, i)] = text;
  }
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes += static_cast<char>(b);
  files[root + "/b/sub/bytes"] = bytes;
  for (const auto& [path, text] : files) {
    MakeDirectories(DirName(path));
    WriteBytes(path, text);
  }
  return files;
}

std::string Sha256Text(const std::string& text) {
  Sha256 sha;
  sha.Update(text);
  return sha.HexDigest();
}

std::vector<std::string> DocumentsOf(const std::string& prefix) {
  const IndexedDataset data(prefix, kByteVocabSize);
  std::vector<std::string> texts;
  for (int64_t d = 0; d < data.documents(); ++d) {
    std::vector<int32_t> tokens(static_cast<size_t>(data.DocumentTokens(d)));
    data.Read(data.DocumentBegin(d), data.DocumentTokens(d), tokens.data());
    REQUIRE(tokens.back() == kByteEndOfDocument);
    REQUIRE(std::count(tokens.begin(), tokens.end(), kByteEndOfDocument) == 1);
    texts.push_back(DecodeBytes(tokens.data(), static_cast<int64_t>(tokens.size())));
  }
  return texts;
}

TokenizeOptions Options(const std::string& path, const std::string& prefix) {
  TokenizeOptions options;
  options.paths = {path};
  options.out_prefix = prefix;
  options.heldout_fraction = 0.2;
  return options;
}

}  // namespace

TEST_CASE("bytes to tokens and back") {
  const std::string text("\0a\xff\n", 4);
  CHECK(EncodeBytes(text) == std::vector<int32_t>{0, 97, 255, 10});
  const int32_t tokens[] = {0, 97, 255, 10, 256, 98};
  CHECK(DecodeBytes(tokens, 6) == text + "b");
  CHECK(DecodeBytes(tokens, 6, "<end>") == text + "<end>b");
  const int32_t bad = 257;
  CHECK_THROWS_AS(DecodeBytes(&bad, 1), InternalError);
}

TEST_CASE("a tree becomes documents in path order, split by their hashes") {
  const TempDir dir;
  const auto files = MakeTree(dir / "tree");
  const TokenizeResult result = Tokenize(Options(dir / "tree", dir / "out/d"));
  std::vector<std::string> train, heldout;
  std::string lines;
  int64_t bytes = 0;
  for (const auto& [path, text] : files) {
    const std::string sha = Sha256Text(text);
    const bool held = std::stod("0x0." + sha.substr(0, 13)) < 0.2;
    (held ? heldout : train).push_back(text);
    lines += (held ? "heldout " : "train ") + sha + "\n";
    bytes += static_cast<int64_t>(text.size());
  }
  REQUIRE(heldout.size() > 3);
  REQUIRE(train.size() > 30);
  CHECK(DocumentsOf(dir / "out/d.train") == train);
  CHECK(DocumentsOf(dir / "out/d.heldout") == heldout);

  CHECK(result.files == 61);
  CHECK(result.duplicates == 0);
  CHECK(result.empty == 0);
  CHECK(result.unreadable.empty());
  CHECK(result.info.sha256 == Sha256Text(lines));
  CHECK(result.info.bytes == bytes);
  CHECK(result.info.train.documents + result.info.heldout.documents == 61);
  CHECK(result.info.train.tokens + result.info.heldout.tokens == bytes + 61);
  CHECK(result.info.trigram_nats > 0);
  CHECK(result.info.trigram_nats < result.info.bigram_nats);

  const auto info = FindDatasetInfo(dir / "out/d.train");
  REQUIRE(info.has_value());
  CHECK(DatasetInfoToJson(*info) == DatasetInfoToJson(result.info));
  CHECK(info->tokenizer == "bytes");
  CHECK(info->vocab_size == 257);
  CHECK(info->bigram_nats == result.info.bigram_nats);
  CHECK_THAT(TokenizeReport(result), HasText(result.info.sha256) && HasText("61 documents") &&
                                         HasText(StrFormat("bigram %.4f", result.info.bigram_nats)));
  CHECK(ListDirectory(dir / "out").size() == 5);  // no temporary file stays
}

TEST_CASE("the same files give the same bytes, wherever they lie and however often") {
  const TempDir dir;
  MakeTree(dir / "tree");
  MakeTree(dir / "elsewhere/deep/tree");
  Tokenize(Options(dir / "tree", dir / "a"));
  Tokenize(Options(dir / "elsewhere", dir / "b"));
  for (const char* suffix : kOutputs) CHECK(ReadFile(dir / "a" + suffix) == ReadFile(dir / "b" + suffix));

  WriteBytes(dir / "tree/a/00.h", "another text");
  const std::string before = ReadFile(dir / "a.json");
  TokenizeOptions options = Options(dir / "tree", dir / "a");
  options.replace = true;
  Tokenize(options);
  CHECK(ReadFile(dir / "a.json") != before);
  CHECK(ReadFile(dir / "a.json").size() > 100);
}

TEST_CASE("what is there already is kept unless it may be replaced") {
  const TempDir dir;
  MakeTree(dir / "tree");
  for (const char* suffix : kOutputs) {  // any part of a data set will do
    INFO(suffix);
    const std::string prefix = dir / "set" + suffix, path = prefix + suffix;
    WriteBytes(path, "mine");
    std::string message;
    try {
      Tokenize(Options(dir / "tree", prefix));
    } catch (const Error& e) {
      CHECK(e.code() == ExitCode::kConfig);
      message = e.what();
    }
    CHECK_THAT(message, HasText(path) && HasText("--force"));
    CHECK(ReadFile(path) == "mine");
    for (const char* other : kOutputs) CHECK(PathExists(prefix + other) == (prefix + other == path));
    TokenizeOptions options = Options(dir / "tree", prefix);
    options.replace = true;
    Tokenize(options);
    CHECK(ReadFile(path) != "mine");
  }
}

TEST_CASE("duplicates, empty files and what cannot be read are counted and named") {
  const TempDir dir;
  const auto files = MakeTree(dir / "tree");
  Tokenize(Options(dir / "tree", dir / "clean"));
  WriteBytes(dir / "tree/zcopy", files.begin()->second);
  WriteBytes(dir / "tree/zcopy2", files.begin()->second);
  WriteBytes(dir / "tree/zempty", "");
  REQUIRE(symlink("/nonexistent/file", (dir / "tree/zlink").c_str()) == 0);
  REQUIRE(symlink(".", (dir / "tree/zloop").c_str()) == 0);
  REQUIRE(mkfifo((dir / "tree/zpipe").c_str(), 0600) == 0);
  const TokenizeResult result = Tokenize(Options(dir / "tree", dir / "dirty"));
  CHECK(result.duplicates == 2);
  CHECK(result.empty == 1);
  REQUIRE(result.unreadable.size() == 3);
  CHECK_THAT(result.unreadable[0], HasText("zlink: "));
  CHECK_THAT(result.unreadable[1], HasText("zloop: is not a regular file"));
  CHECK_THAT(result.unreadable[2], HasText("zpipe: is not a regular file"));
  CHECK(result.files == 61 + 6);
  for (const char* suffix : kOutputs)
    CHECK(ReadFile(dir / "clean" + suffix) == ReadFile(dir / "dirty" + suffix));
  CHECK_THAT(TokenizeReport(result),
             HasText("2 exact duplicates, 1 empty, 3 unreadable") && HasText("skipped ") && HasText("zpipe"));
}

TEST_CASE("a list of files; paths given twice count once; missing ones are reported") {
  const TempDir dir;
  const auto files = MakeTree(dir / "tree");
  Tokenize(Options(dir / "tree", dir / "a"));
  std::string list;
  for (const auto& [path, text] : files) list = path + "\n" + list;  // backwards
  list += files.begin()->first + "\r\n\n" + (dir / "missing") + "\n";
  WriteBytes(dir / "list", list);
  TokenizeOptions options = Options("", dir / "b");
  options.paths.clear();
  options.file_list = dir / "list";
  const TokenizeResult result = Tokenize(options);
  CHECK(result.files == 62);
  CHECK(result.duplicates == 0);
  CHECK(result.unreadable == std::vector<std::string>{dir / "missing" + ": No such file or directory"});
  for (const char* suffix : kOutputs) CHECK(ReadFile(dir / "a" + suffix) == ReadFile(dir / "b" + suffix));
}

TEST_CASE("outputs inside of the tree are not read back") {
  const TempDir dir;
  MakeTree(dir / "tree");
  Tokenize(Options(dir / "tree", dir / "tree/out"));
  const std::string first = ReadFile(dir / "tree/out.json");
  TokenizeOptions options = Options(dir / "tree", dir / "tree/out");
  options.replace = true;
  const TokenizeResult again = Tokenize(options);
  CHECK(ReadFile(dir / "tree/out.json") == first);
  CHECK(again.unreadable.size() == 5);
}

TEST_CASE("a document keeps its side when others come") {
  const TempDir dir;
  MakeTree(dir / "tree");
  Tokenize(Options(dir / "tree", dir / "a"));
  for (int i = 0; i < 40; ++i)
    WriteBytes(StrFormat("%s/new%d", (dir / "tree").c_str(), i), StrCat("new ", i));
  Tokenize(Options(dir / "tree", dir / "b"));
  const auto held_a = DocumentsOf(dir / "a.heldout"), held_b = DocumentsOf(dir / "b.heldout");
  const std::set<std::string> held(held_b.begin(), held_b.end());
  for (const std::string& text : held_a) CHECK(held.count(text) == 1);
  for (const std::string& text : DocumentsOf(dir / "a.train")) CHECK(held.count(text) == 0);
}

TEST_CASE("neither side is ever empty") {
  const TempDir dir;
  MakeDirectories(dir / "x");
  WriteBytes(dir / "x/1", "one");
  WriteBytes(dir / "x/2", "two and");
  for (const double fraction : {1e-9, 0.5, 1 - 1e-9}) {
    TokenizeOptions options = Options(dir / "x", dir / "d");
    options.heldout_fraction = fraction;
    options.replace = true;
    const TokenizeResult result = Tokenize(options);
    CHECK(result.info.train.documents == 1);
    CHECK(result.info.heldout.documents == 1);
  }
}

TEST_CASE("impossible requests") {
  const TempDir dir;
  WriteBytes(dir / "x", "text");
  const auto code_of = [](const TokenizeOptions& options) {
    try {
      Tokenize(options);
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kOk;
  };
  TokenizeOptions options = Options(dir / "x", dir / "d");
  CHECK_THAT(DataErrorOf([&] { Tokenize(options); }), HasText("found 1 different documents"));
  options.paths = {dir / "none"};
  CHECK_THAT(DataErrorOf([&] { Tokenize(options); }), HasText("none: no such file or directory"));
  options.paths.clear();
  CHECK(code_of(options) == ExitCode::kConfig);
  for (const double fraction : {0.0, 1.0, -1.0, std::nan("")}) {
    options = Options(dir / "x", dir / "d");
    options.heldout_fraction = fraction;
    CHECK(code_of(options) == ExitCode::kConfig);
  }
  options = Options(dir / "x", "");
  CHECK(code_of(options) == ExitCode::kConfig);
  CHECK(ListDirectory(dir.path()) == std::vector<std::string>{"x"});
}

TEST_CASE("a damaged PREFIX.json is named with its key") {
  const TempDir dir;
  CHECK_FALSE(FindDatasetInfo(dir / "d.train").has_value());
  DatasetInfo info;
  info.tokenizer = "bytes";
  info.bigram_nats = 2.5;
  const std::string good = DatasetInfoToJson(info);
  const auto error_of = [&](const std::string& text) {
    WriteBytes(dir / "d.json", text);
    return DataErrorOf([&] { FindDatasetInfo(dir / "d.heldout.idx"); });
  };
  CHECK(error_of(good) == "");
  CHECK(FindDatasetInfo(dir / "d")->bigram_nats == 2.5);
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    REQUIRE(text.find(from) != std::string::npos);
    return text.replace(text.find(from), from.size(), to);
  };
  CHECK_THAT(error_of(good.substr(0, good.size() / 2)), HasText("d.json: is not a JSON object"));
  CHECK_THAT(error_of("[]"), HasText("d.json: is not a JSON object"));
  CHECK_THAT(error_of("{}"), HasText("d.json") && HasText("version"));
  CHECK_THAT(error_of(replaced("\"bytes\": 0", "\"bytes\": \"0\"")),
             HasText("d.json: /bytes") && HasText("wrong type"));
  CHECK_THAT(error_of(replaced("\"vocab_size\"", "\"vocab\"")), HasText("d.json: /vocab_size: is missing"));
}

}  // namespace yardmaster
