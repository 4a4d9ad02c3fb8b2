// What the tests of src/data share: a directory of their own, small data sets, and errors as text.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/strings.h"
#include "src/data/megatron_writer.h"
#include "tests/catch.h"

namespace yardmaster::testing {

class TempDir {
 public:
  TempDir() {
    const char* root = getenv("TEST_TMPDIR");
    std::string pattern = JoinPath(root != nullptr ? root : "/tmp", "data_XXXXXX");
    path_ = mkdtemp(pattern.data());
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() { RemoveTree(path_); }
  std::string operator/(const std::string& name) const { return JoinPath(path_, name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

using Documents = std::vector<std::vector<int32_t>>;

inline void WriteDataset(const std::string& prefix, const Documents& documents,
                         TokenType type = TokenType::kU16) {
  IndexedDatasetWriter writer(prefix, type);
  for (const auto& document : documents) {
    writer.Append(document.data(), static_cast<int64_t>(document.size()));
    writer.EndDocument();
  }
  writer.Finish();
  writer.Publish();
}

// `count` documents of 1 to `longest` tokens, numbered through: every token of the data set is different.
inline Documents NumberedDocuments(int count, int longest, uint32_t seed) {
  std::mt19937 random(seed);
  Documents documents(static_cast<size_t>(count));
  int32_t next = 0;
  for (auto& document : documents) {
    document.resize(1 + random() % static_cast<uint32_t>(longest));
    for (int32_t& token : document) token = next++;
  }
  return documents;
}

inline std::vector<int32_t> Concatenated(const Documents& documents) {
  std::vector<int32_t> all;
  for (const auto& document : documents) all.insert(all.end(), document.begin(), document.end());
  return all;
}

inline void WriteBytes(const std::string& path, std::string_view bytes) {
  FileWriter out(path);
  out.Write(bytes);
  out.Close(/*fsync=*/false);
}

// The matcher's name in Catch2 3 and in 2.
#if __has_include(<catch2/catch_all.hpp>)
inline auto HasText(const std::string& text) { return Catch::Matchers::ContainsSubstring(text); }
#else
inline auto HasText(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif

// The message of the Error with code kData that `call` throws; "" if it throws none. Anything else goes
// through.
template <class F>
std::string DataErrorOf(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() == ExitCode::kData) return error.what();
    throw;
  }
  return "";
}

}  // namespace yardmaster::testing
