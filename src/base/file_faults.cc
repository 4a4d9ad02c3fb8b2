#include "src/base/file_faults.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "src/base/error.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

const char* const kOpNames[] = {"open", "write", "fsync", "close", "rename", "mkdir", "remove"};

struct State {
  std::mutex mutex;
  FileFaults faults;
  int64_t seen = 0;
  int64_t hits = 0;
  int64_t bytes_left = 0;
};

State& TheState() {
  static State state;
  return state;
}

// Read without the mutex by every file operation of a normal run.
std::atomic<bool>& Active() {
  static std::atomic<bool> active = [] {
    const char* text = std::getenv("YARDMASTER_FAULT_FILE");
    if (text == nullptr || *text == '\0') return false;
    State& state = TheState();
    state.faults = ParseFileFaults(text);
    state.bytes_left = state.faults.allow_bytes;
    return true;
  }();
  return active;
}

int64_t ParseNumber(const std::string& text, const std::string& field) {
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0)
    throw ConfigError(StrCat("'", text, "' is not a number for '", field, "'"), "YARDMASTER_FAULT_FILE");
  return value;
}

}  // namespace

FileFaults ParseFileFaults(const std::string& text) {
  static const std::map<std::string, int> errors = {
      {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EIO", EIO}, {"EINTR", EINTR}, {"EACCES", EACCES}};
  FileFaults out;
  for (const std::string& part : StrSplit(text, ',')) {
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (key == "op") {
      const bool known = value == "any" || std::count(std::begin(kOpNames), std::end(kOpNames), value) != 0;
      if (!known) throw ConfigError(StrCat("unknown operation '", value, "'"), "YARDMASTER_FAULT_FILE");
      out.op = value;
    } else if (key == "match") {
      out.match = value;
    } else if (key == "nth") {
      out.nth = ParseNumber(value, key);
    } else if (key == "count") {
      out.count = ParseNumber(value, key);
    } else if (key == "error") {
      const auto it = errors.find(value);
      out.error = it != errors.end() ? it->second : static_cast<int>(ParseNumber(value, key));
    } else if (key == "kill" && equals == std::string::npos) {
      out.kill = true;
    } else if (key == "allow_bytes") {
      out.allow_bytes = ParseNumber(value, key);
    } else if (key == "max_write") {
      out.max_write = ParseNumber(value, key);
    } else if (key == "free_bytes") {
      out.free_bytes = ParseNumber(value, key);
    } else {
      throw ConfigError(StrCat("unknown field '", key, "'"), "YARDMASTER_FAULT_FILE",
                        "fields: op, match, nth, count, error, kill, allow_bytes, max_write, free_bytes");
    }
  }
  return out;
}

void ReadFileFaultVariable() { Active(); }

void SetFileFaults(const FileFaults& faults) {
  std::atomic<bool>& active = Active();
  State& state = TheState();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.faults = faults;
  state.seen = state.hits = 0;
  state.bytes_left = faults.allow_bytes;
  active = true;
}

void ClearFileFaults() {
  std::atomic<bool>& active = Active();
  State& state = TheState();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.faults = FileFaults();
  active = false;
}

int64_t FileFaultHits() {
  State& state = TheState();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.hits;
}

int64_t FileFaultOperations() {
  State& state = TheState();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.seen;
}

namespace internal {

int CheckFileFault(FileOp op, const std::string& path, size_t* bytes) {
  if (!Active().load(std::memory_order_relaxed)) return 0;
  State& state = TheState();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const FileFaults& faults = state.faults;
  if (path.find(faults.match) == std::string::npos) return 0;
  if (op == FileOp::kWrite && bytes != nullptr) {
    if (faults.max_write > 0) *bytes = std::min(*bytes, static_cast<size_t>(faults.max_write));
    if (faults.allow_bytes >= 0) {
      if (state.bytes_left == 0) return ++state.hits, ENOSPC;
      *bytes = std::min(*bytes, static_cast<size_t>(state.bytes_left));
      state.bytes_left -= static_cast<int64_t>(*bytes);
    }
  }
  if (faults.op != "any" && faults.op != kOpNames[static_cast<int>(op)]) return 0;
  ++state.seen;
  if (faults.nth <= 0 || state.seen < faults.nth) return 0;
  if (faults.count >= 0 && state.seen >= faults.nth + faults.count) return 0;
  if (faults.kill) ::raise(SIGKILL);
  ++state.hits;
  return faults.error;
}

int64_t FaultyFreeBytes() {
  if (!Active().load(std::memory_order_relaxed)) return -1;
  State& state = TheState();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.faults.free_bytes;
}

}  // namespace internal
}  // namespace yardmaster
