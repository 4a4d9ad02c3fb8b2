// The one way to Catch2: 2.13 (Debian 12, a single header) or 3.x (Ubuntu 24.04, a library).
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#include <string>

namespace yardmaster::testing {

// Marks the running test case as skipped in the report. YM_SKIP also leaves it.
void MarkSkipped(const std::string& reason);

}  // namespace yardmaster::testing

// Leaves a test case that this machine cannot run. The reason is printed and counted;
// use it for missing hardware only. Catch2 2.13 has no SKIP.
#define YM_SKIP(reason)                         \
  do {                                          \
    ::yardmaster::testing::MarkSkipped(reason); \
    return;                                     \
  } while (false)
