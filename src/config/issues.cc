#include "src/config/issues.h"

#include <algorithm>
#include <tuple>

#include "src/base/error.h"
#include "src/base/strings.h"

namespace yardmaster {

std::string Place::ToString() const { return line == 0 ? file : StrCat(file, ":", line, ":", column); }

void Issues::Add(const Place& place, const std::string& path, const std::string& message) {
  if (full()) {
    ++unkept_;
  } else {
    issues_.push_back({place, path, message});
  }
}

std::vector<std::string> Issues::Lines() const {
  std::vector<Issue> sorted = issues_;
  const auto key = [](const Issue& i) {
    return std::make_tuple(i.place.line == 0, i.place.line, i.place.column);
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Issue& a, const Issue& b) { return key(a) < key(b); });
  std::vector<std::string> lines;
  for (const Issue& issue : sorted) {
    lines.push_back(
        StrCat(issue.place.ToString(), ": ", issue.path, issue.path.empty() ? "" : ": ", issue.message));
  }
  if (unkept_ > 0) lines.push_back(StrCat("... and ", unkept_, " more"));
  return lines;
}

void Issues::ThrowIfAny() const {
  if (!empty()) throw ConfigError(StrJoin(Lines(), "\n"));
}

}  // namespace yardmaster
