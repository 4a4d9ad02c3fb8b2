// File: src/base/strings.h
//
// StrCat("a", 1, 2.5) joins anything printable; StrFormat is printf into a std::string, checked by the compiler.
// (fmt and std::format would cost seconds of compile time in every file, or a newer compiler.)
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace yardmaster {

template <class... Args>
std::string StrCat(const Args&... args) {
  if constexpr (sizeof...(Args) == 0) {
    return std::string();
  } else {
    std::ostringstream out;
    (out << ... << args);
    return out.str();
  }
}

[[gnu::format(printf, 1, 2)]] std::string StrFormat(const char* format, ...);

std::string StrJoin(const std::vector<std::string>& parts, std::string_view separator);
std::vector<std::string> StrSplit(std::string_view text, char separator);

std::string HumanBytes(double bytes);  // 1536 -> "1.50 KiB"
std::string HumanCount(double count);  // 671026419200 -> "671.03 B"
std::string HumanSeconds(double seconds);  // 3725 -> "1h02m"

// Of `candidates`, the nearest to `word` by edit distance, or "" when none is near (for "did you mean").
std::string NearestName(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace yardmaster
