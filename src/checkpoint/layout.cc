#include "src/checkpoint/layout.h"

#include <algorithm>

#include "src/base/files.h"
#include "src/base/strings.h"

namespace yardmaster {

std::string StepDirectoryName(int64_t step) { return StrFormat("step_%08lld", static_cast<long long>(step)); }

int64_t StepOfDirectoryName(const std::string& name) {
  const std::string prefix = "step_";
  if (name.compare(0, prefix.size(), prefix) != 0) return -1;
  const std::string digits = name.substr(prefix.size());
  if (digits.size() < 8 || digits.size() > 18) return -1;
  int64_t step = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return -1;
    step = step * 10 + (c - '0');
  }
  return StepDirectoryName(step) == name ? step : -1;
}

std::string ShardFileName(int rank) { return StrFormat("shard_%05d.safetensors", rank); }

std::vector<StepDirectory> ListSteps(const std::string& dir) {
  std::vector<StepDirectory> out;
  for (const std::string& name : ListDirectory(dir)) {
    const int64_t step = StepOfDirectoryName(name);
    if (step >= 0) out.push_back({name, step});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return out;
}

}  // namespace yardmaster
