// File: src/base/check.h
//
// YM_CHECK(cond, parts...) and YM_CHECK_EQ(a, b, parts...) guard invariants: a failure is a bug in Yardmaster and
// throws InternalError with the expression, both values, the place and the parts joined by StrCat.
// Use Error (error.h) for anything a user or the environment can cause.
#pragma once

#include <string>

#include "src/base/error.h"
#include "src/base/strings.h"

namespace yardmaster::internal {

[[noreturn]] inline void CheckFailed(const char* expression, const char* file, int line, const std::string& detail) {
  throw InternalError(StrCat("check failed: ", expression, " at ", file, ":", line, detail.empty() ? "" : ": ", detail));
}

}  // namespace yardmaster::internal

#define YM_CHECK(cond, ...)                                                                                       \
  do {                                                                                                            \
    if (!(cond)) [[unlikely]]                                                                                     \
      ::yardmaster::internal::CheckFailed(#cond, __FILE__, __LINE__, ::yardmaster::StrCat(__VA_ARGS__));          \
  } while (0)

#define YM_CHECK_OP_(op, a, b, ...)                                                                               \
  do {                                                                                                            \
    const auto& ym_a_ = (a);                                                                                      \
    const auto& ym_b_ = (b);                                                                                      \
    if (!(ym_a_ op ym_b_)) [[unlikely]]                                                                           \
      ::yardmaster::internal::CheckFailed(#a " " #op " " #b, __FILE__, __LINE__,                                  \
                                          ::yardmaster::StrCat(ym_a_, " vs ", ym_b_, " ", ##__VA_ARGS__));        \
  } while (0)

#define YM_CHECK_EQ(a, b, ...) YM_CHECK_OP_(==, a, b, ##__VA_ARGS__)
#define YM_CHECK_LE(a, b, ...) YM_CHECK_OP_(<=, a, b, ##__VA_ARGS__)
#define YM_CHECK_LT(a, b, ...) YM_CHECK_OP_(<, a, b, ##__VA_ARGS__)
#define YM_CHECK_GE(a, b, ...) YM_CHECK_OP_(>=, a, b, ##__VA_ARGS__)
