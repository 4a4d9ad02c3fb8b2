#include "src/checkpoint/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/strings.h"
#include "src/checkpoint/outcome.h"

namespace yardmaster {
namespace {

std::string DescribeSelf() {
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  const time_t now = ::time(nullptr);
  struct tm local;
  char when[64] = "";
  if (::localtime_r(&now, &local) != nullptr) ::strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &local);
  return StrCat("pid ", ::getpid(), " on ", host, " since ", when);
}

}  // namespace

RunLock::RunLock(const std::string& run_dir, Agreement& world) {
  const Outcome outcome = AttemptOnFirst(world, [&] { Take(run_dir); });
  if (!outcome.ok() && fd_ >= 0) ::close(fd_);
  ThrowIfFailed(outcome);
}

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}

void RunLock::Take(const std::string& run_dir) {
  MakeDirectories(run_dir);
  const std::string path = JoinPath(run_dir, ".lock");
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0)
    throw ConfigError(StrCat("cannot open: ", std::strerror(errno)), path,
                      "check the owner and the permissions of run.dir");
  int result;
  do {
    result = ::flock(fd_, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EWOULDBLOCK) {
    char holder[512];
    const ssize_t got = ::pread(fd_, holder, sizeof(holder), 0);
    std::string who(holder, got > 0 ? static_cast<size_t>(got) : 0);
    while (!who.empty() && who.back() == '\n') who.pop_back();
    throw ConfigError(StrCat("another run is using this directory: ", who.empty() ? "unknown holder" : who),
                      run_dir, "wait for it, stop it, or choose another run.dir");
  }
  if (result != 0) {
    warning_ = StrCat(path, ": cannot lock (", std::strerror(errno),
                      "): nothing keeps a second run out of this directory");
    return;
  }
  const std::string text = DescribeSelf() + "\n";
  // Only for the message of a second run: the lock is held whether or not this can be written.
  if (::ftruncate(fd_, 0) != 0 ||
      ::pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    warning_ = StrCat(path, ": cannot write who holds the lock (", std::strerror(errno), ")");
}

}  // namespace yardmaster
