// File: tests/base/temp_dir.h
#pragma once

#include <stdlib.h>

#include <string>

#include "src/base/check.h"
#include "src/base/file_faults.h"
#include "src/base/files.h"

namespace yardmaster::testing {

// A new empty directory that goes away with the object.
class TempDir {
 public:
  TempDir() {
    const char* base = getenv("TEST_TMPDIR");
    path_ = JoinPath(base != nullptr ? base : "/tmp", "ym_test_XXXXXX");
    YM_CHECK(mkdtemp(path_.data()) != nullptr, path_);
  }
  ~TempDir() {
    try {
      RemoveTree(path_);
    } catch (const std::exception&) {  // left behind in the temporary directory: no reason to end the tests
    }
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
};

// File faults that end with the object, whatever the test does.
class ScopedFaults {
 public:
  explicit ScopedFaults(const FileFaults& faults) { SetFileFaults(faults); }
  explicit ScopedFaults(const std::string& text) { SetFileFaults(ParseFileFaults(text)); }
  ~ScopedFaults() { ClearFileFaults(); }
  ScopedFaults(const ScopedFaults&) = delete;
  ScopedFaults& operator=(const ScopedFaults&) = delete;
};

}  // namespace yardmaster::testing
