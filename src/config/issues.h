// File: src/config/issues.h
//
// Places in a configuration and the list of everything that is wrong with it: a user sees all errors at once,
// in the order of the file, one line each: `file:line:column: section.key: message`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace yardmaster {

// Where a key or value was written. `file` may also be a command line argument ("--set a.b=c"): then line is
// 0.
struct Place {
  std::string file;
  int line = 0;    // 1-based
  int column = 0;  // 1-based, in bytes
  std::string ToString() const;
};

class Issues {
 public:
  // `path` is the dotted key ("optimizer.beta1"), or empty where there is none (syntax errors).
  void Add(const Place& place, const std::string& path, const std::string& message);
  bool empty() const { return issues_.empty(); }
  size_t size() const { return issues_.size(); }
  bool full() const { return issues_.size() >= kMost; }  // more are counted, not kept
  // By line and column of the file, then those of the command line in their order.
  std::vector<std::string> Lines() const;
  // Throws one ConfigError with all lines, if there are any.
  void ThrowIfAny() const;

 private:
  static constexpr size_t kMost = 200;
  struct Issue {
    Place place;
    std::string path, message;
  };
  std::vector<Issue> issues_;
  size_t unkept_ = 0;
};

}  // namespace yardmaster
