#include "src/base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

#include "src/base/files.h"
#include "tests/base/temp_dir.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

// What `body` writes to a descriptor of this process.
std::string Capture(int descriptor, const std::function<void()>& body) {
  const testing::TempDir dir;
  std::fflush(nullptr);
  const int saved = ::dup(descriptor);
  const int file = ::open((dir / "out").c_str(), O_CREAT | O_WRONLY, 0600);
  ::dup2(file, descriptor);
  body();
  FlushLog();
  std::fflush(nullptr);
  ::dup2(saved, descriptor);
  ::close(saved);
  ::close(file);
  return ReadFile(dir / "out");
}

TEST_CASE("only rank 0 prints information; warnings and errors name the rank") {
  InitLog({/*rank=*/0, /*color=*/false});
  CHECK(Capture(STDOUT_FILENO, [] { LogInfo("step {} 100%"); }) == "step {} 100%\n");
  CHECK(Capture(STDERR_FILENO, [] { LogWarning("late"); }) == "warning [rank 0]: late\n");
  InitLog({/*rank=*/3, /*color=*/false});
  CHECK(Capture(STDOUT_FILENO, [] { LogInfo("hidden"); }).empty());
  CHECK(Capture(STDERR_FILENO, [] { LogError("broken"); }) == "error [rank 3]: broken\n");
  CHECK_FALSE(LogColor());
}

TEST_CASE("colour only when asked") {
  InitLog({/*rank=*/0, /*color=*/true});
  CHECK(LogColor());
  CHECK(Capture(STDERR_FILENO, [] { LogWarning("late"); }).find("\033[") != std::string::npos);
  InitLog({});
  CHECK(Capture(STDERR_FILENO, [] { LogWarning("late"); }).find("\033[") == std::string::npos);
}

}  // namespace
}  // namespace yardmaster
