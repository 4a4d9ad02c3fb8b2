// Says what is wrong on a processor that lacks the instructions this build uses, where it would
// otherwise die of SIGILL. Compiled for plain x86-64 and run before every other initialiser.
#include <unistd.h>

#if defined(__x86_64__)
namespace {

__attribute__((constructor(101))) void CheckProcessor() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    return;
  }
  static const char kMessage[] =
      "yardmaster: this build needs a processor with AVX2, FMA and BMI2 (x86-64-v3). "
      "Build for an older one: remove -march=x86-64-v3 in tools/bazel/yardmaster.bzl.\n";
  [[maybe_unused]] const auto written = write(2, kMessage, sizeof(kMessage) - 1);
  _exit(1);
}

}  // namespace
#endif
