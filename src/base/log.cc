#include "src/base/log.h"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "src/base/strings.h"

namespace yardmaster {
namespace {

struct Console {
  LogOptions options;
  std::shared_ptr<spdlog::logger> out, err;
  explicit Console(const LogOptions& o) : options(o) {
    const auto mode = o.color ? spdlog::color_mode::always : spdlog::color_mode::never;
    out = std::make_shared<spdlog::logger>("out",
                                           std::make_shared<spdlog::sinks::ansicolor_stdout_sink_mt>(mode));
    err = std::make_shared<spdlog::logger>("err",
                                           std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>(mode));
    out->set_pattern("%v");
    err->set_pattern("%^%v%$");
    // A line is seen when it is written, also through mpirun's pipes.
    out->flush_on(spdlog::level::info);
    err->flush_on(spdlog::level::info);
  }
};

// Lines may come before InitLog (errors of the command line), hence a default.
std::shared_ptr<Console>& TheConsole() {
  static std::shared_ptr<Console> console = std::make_shared<Console>(LogOptions());
  return console;
}

std::shared_ptr<Console> Get() { return std::atomic_load(&TheConsole()); }

void Complain(spdlog::level::level_enum level, const char* word, const std::string& line) {
  const auto console = Get();
  console->err->log(level,
                    spdlog::string_view_t(StrCat(word, " [rank ", console->options.rank, "]: ", line)));
}

}  // namespace

void InitLog(const LogOptions& options) {
  std::atomic_store(&TheConsole(), std::make_shared<Console>(options));
}

bool LogColor() { return Get()->options.color; }

void LogInfo(const std::string& line) {
  const auto console = Get();
  if (console->options.rank == 0) console->out->log(spdlog::level::info, spdlog::string_view_t(line));
}

void LogWarning(const std::string& line) { Complain(spdlog::level::warn, "warning", line); }

void LogError(const std::string& line) { Complain(spdlog::level::err, "error", line); }

void FlushLog() {
  const auto console = Get();
  console->out->flush();
  console->err->flush();
}

}  // namespace yardmaster
