#include "src/base/strings.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace yardmaster {

std::string StrFormat(const char* format, ...) {
  va_list args;
  va_start(args, format);
  va_list copy;
  va_copy(copy, args);
  const int size = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  std::string out(size < 0 ? 0 : static_cast<size_t>(size), '\0');
  if (size > 0) std::vsnprintf(out.data(), out.size() + 1, format, args);
  va_end(args);
  return out;
}

std::string StrJoin(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i) out += separator;
    out += parts[i];
  }
  return out;
}

std::vector<std::string> StrSplit(std::string_view text, char separator) {
  std::vector<std::string> out;
  size_t begin = 0;
  for (;;) {
    const size_t end = text.find(separator, begin);
    out.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return out;
    begin = end + 1;
  }
}

std::string HumanBytes(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (std::abs(bytes) >= 1024 && unit < 5) bytes /= 1024, ++unit;
  return unit == 0 ? StrFormat("%.0f B", bytes) : StrFormat("%.2f %s", bytes, units[unit]);
}

std::string HumanCount(double count) {
  const char* units[] = {"", " K", " M", " B", " T"};
  int unit = 0;
  while (std::abs(count) >= 1000 && unit < 4) count /= 1000, ++unit;
  return unit == 0 ? StrFormat("%.0f", count) : StrFormat("%.2f%s", count, units[unit]);
}

std::string HumanSeconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const int64_t s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return StrFormat("%llds", static_cast<long long>(s));
  if (s < 3600)
    return StrFormat("%lldm%02llds", static_cast<long long>(s / 60), static_cast<long long>(s % 60));
  if (s < 86400)
    return StrFormat("%lldh%02lldm", static_cast<long long>(s / 3600), static_cast<long long>(s % 3600 / 60));
  return StrFormat("%lldd%02lldh", static_cast<long long>(s / 86400),
                   static_cast<long long>(s % 86400 / 3600));
}

namespace {

// Insertions, deletions, substitutions and swaps of neighbours from a to b (optimal string alignment).
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j < last.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j < row.size(); ++j) {
      row[j] = std::min({row[j - 1] + 1, last[j] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = last;
    last = row;
  }
  return last.back();
}

}  // namespace

// Near is at most one edit for each three letters: two letters of three make another word.
std::string NearestName(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) best_distance = distance, best = candidate;
  }
  return best;
}

}  // namespace yardmaster
