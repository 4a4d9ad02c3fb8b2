#include "src/metrics/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/file_faults.h"
#include "src/base/files.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

struct Kept {
  std::string text;  // the whole lines that belong to steps up to the last
  int64_t last_evaluation = -1;
  int64_t damaged = 0, first_damaged = 0;  // lines that are no records, and the number of the first
};

Kept CutBack(const std::string& text, int64_t last_step) {
  Kept kept;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string line = text.substr(begin, end + 1 - begin);
    begin = end + 1;
    ++number;
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) {
      if (kept.damaged++ == 0) kept.first_damaged = number;
      continue;
    }
    if (object["step"].get<int64_t>() > last_step) continue;
    kept.text += line;
    if (object.contains("val_loss")) kept.last_evaluation = object["step"].get<int64_t>();
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, int64_t last_step) : path_(path) {
  if (PathExists(path)) {
    const std::string text = ReadFile(path);
    const Kept kept = CutBack(text, last_step);
    last_evaluation_ = kept.last_evaluation;
    if (kept.damaged > 0) {
      const char* what = kept.damaged == 1 ? " line is no record and was" : " lines are no records and were";
      damage_ = StrCat(path, ": ", kept.damaged, what, " dropped, first line ", kept.first_damaged);
    }
    if (kept.text != text) WriteFileAtomically(path, kept.text);
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
    size_t now = line.size() - done;
    const int fault = internal::CheckFileFault(FileOp::kWrite, path_, &now);
    const ssize_t n = fault == 0 ? ::write(fd_, line.data() + done, now) : -1;
    if (fault != 0) errno = fault;
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
