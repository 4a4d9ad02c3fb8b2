#include "src/metrics/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

// The whole lines of `text` that belong to steps up to last_step.
std::string CutBack(const std::string& text, int64_t last_step, int64_t* last_evaluation) {
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string line = text.substr(begin, end + 1 - begin);
    begin = end + 1;
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) continue;
    if (object["step"].get<int64_t>() > last_step) continue;
    kept += line;
    if (object.contains("val_loss")) *last_evaluation = object["step"].get<int64_t>();
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, int64_t last_step) : path_(path) {
  if (PathExists(path)) {
    const std::string text = ReadFile(path), kept = CutBack(text, last_step, &last_evaluation_);
    if (kept != text) WriteFileAtomically(path, kept);
  }
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0)
    throw DataError(StrCat("cannot open for writing: ", std::strerror(errno)), path,
                    "check run.dir and its permissions");
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsFile::Append(const std::string& line) {
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const bool full = errno == ENOSPC || errno == EDQUOT;
      throw Error(full ? ExitCode::kDiskFull : ExitCode::kData,
                  StrCat("cannot write: ", std::strerror(errno)), path_,
                  full ? "free some space; the run resumes from its last checkpoint" : "");
    }
    done += static_cast<size_t>(n);
  }
}

}  // namespace yardmaster
