#include "src/base/error.h"

#include <string>

#include "src/base/check.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

TEST_CASE("an error says where, what and what to do") {
  const Error error = ConfigError("unknown key 'lrr'", "a.yaml:3:5", "did you mean 'lr'?");
  CHECK(std::string(error.what()) == "a.yaml:3:5: unknown key 'lrr'\n  hint: did you mean 'lr'?");
  CHECK(error.code() == ExitCode::kConfig);
  CHECK(std::string(DataError("short").what()) == "short");
  CHECK(DataError("short").code() == ExitCode::kData);
  CHECK(CheckpointError("x").code() == ExitCode::kCheckpoint);
}

TEST_CASE("a failed check names the expression, both values and the place") {
  const int rows = 3;
  CHECK_NOTHROW([&] { YM_CHECK_EQ(rows, 3); }());
  try {
    YM_CHECK_LT(rows, 2, "of tensor ", "w");
    FAIL("the check passed");
  } catch (const InternalError& error) {
    const std::string text = error.what();
    CHECK(text.find("rows < 2") != std::string::npos);
    CHECK(text.find("3 vs 2 of tensor w") != std::string::npos);
    CHECK(text.find("error_test.cc:") != std::string::npos);
  }
  CHECK_THROWS_AS([&] { YM_CHECK(rows == 4, "rows"); }(), InternalError);
}

}  // namespace
}  // namespace yardmaster
