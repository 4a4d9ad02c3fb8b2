#include "src/base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "src/base/error.h"
#include "src/base/file_faults.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

using internal::CheckFileFault;

constexpr size_t kBufferBytes = size_t{1} << 20;
// Linux moves at most 2 GiB - 4 KiB in one call; smaller calls notice a full disk sooner.
constexpr size_t kMaxCallBytes = size_t{1} << 30;

[[noreturn]] void ThrowErrno(const char* action, const std::string& path, int error) {
  const std::string what = StrCat("cannot ", action, ": ", std::generic_category().message(error));
  switch (error) {
    case ENOSPC:
      throw Error(ExitCode::kDiskFull, what, path,
                  "free space on this file system, or write elsewhere (run.dir)");
    case EDQUOT:
      throw Error(ExitCode::kDiskFull, what, path,
                  "the quota is used up although the disk may not be full: see quota(1)");
    case EACCES:
    case EPERM:
    case EROFS:
      throw Error(ExitCode::kConfig, what, path, "check the owner and the permissions of the path");
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EEXIST:
      throw Error(ExitCode::kConfig, what, path, "check the path");
    default:
      throw Error(ExitCode::kData, what, path, "see dmesg and the state of the file system");
  }
}

// The same for reading: whatever is wrong with a file that should be read is kData.
[[noreturn]] void ThrowUnreadable(const char* action, const std::string& path, int error) {
  throw DataError(StrCat("cannot ", action, ": ", std::generic_category().message(error)), path);
}

template <class F>
auto RetryInterrupted(F&& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

int FaultyCall(FileOp op, const std::string& path) {
  const int error = CheckFileFault(op, path);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

int FsyncDescriptor(int fd, const std::string& path) {
  return RetryInterrupted([&] { return FaultyCall(FileOp::kFsync, path) == 0 ? ::fsync(fd) : -1; });
}

// close() is never retried: on Linux the descriptor is gone whatever it returns. EINTR after an fsync loses
// nothing.
int CloseDescriptor(int fd, const std::string& path) {
  const int fault = CheckFileFault(FileOp::kClose, path);
  const int result = ::close(fd);
  const int error = fault != 0 ? fault : result != 0 ? errno : 0;
  if (error == 0 || error == EINTR) return 0;
  errno = error;
  return -1;
}

// O_NONBLOCK: opening a pipe without a writer would wait for one; it is refused below. Regular files ignore it.
int OpenForReading(const std::string& path, struct stat* info) {
  const int fd =
      RetryInterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) ThrowUnreadable("open", path, errno);
  if (::fstat(fd, info) != 0) {
    const int error = errno;
    ::close(fd);
    ThrowUnreadable("look at", path, error);
  }
  if (!S_ISREG(info->st_mode)) {
    ::close(fd);
    throw DataError("is not a regular file", path);
  }
  return fd;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  struct stat info;
  const int fd = OpenForReading(path, &info);
  size_ = static_cast<size_t>(info.st_size);
  if (size_ > 0) {
    void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      ThrowUnreadable("map", path, error);
    }
    data_ = static_cast<std::byte*>(data);
  }
  ::close(fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

FileWriter::FileWriter(const std::string& path) : path_(path) {
  fd_ = RetryInterrupted([&] {
    return FaultyCall(FileOp::kOpen, path) == 0
               ? ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)
               : -1;
  });
  if (fd_ < 0) ThrowErrno("create", path, errno);
  buffer_.reserve(kBufferBytes);
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

namespace {

void WriteFully(int fd, const std::string& path, const char* data, size_t bytes) {
  while (bytes > 0) {
    size_t now = std::min(bytes, kMaxCallBytes);
    const int fault = CheckFileFault(FileOp::kWrite, path, &now);
    const ssize_t done = fault == 0 ? ::write(fd, data, now) : -1;
    if (done < 0) {
      const int error = fault != 0 ? fault : errno;
      if (error == EINTR) continue;
      ThrowErrno("write", path, error);
    }
    // POSIX allows 0 for a non-empty write only where nothing more can be written.
    if (done == 0) ThrowErrno("write", path, ENOSPC);
    data += done;
    bytes -= static_cast<size_t>(done);
  }
}

}  // namespace

void FileWriter::Flush() {
  if (buffer_.empty()) return;
  WriteFully(fd_, path_, buffer_.data(), buffer_.size());
  buffer_.clear();
}

void FileWriter::Write(const void* data, size_t bytes) {
  if (fd_ < 0) throw InternalError(StrCat("write to a closed file: ", path_));
  const char* from = static_cast<const char*>(data);
  bytes_ += bytes;
  if (buffer_.size() + bytes > kBufferBytes) Flush();
  if (bytes >= kBufferBytes) {
    WriteFully(fd_, path_, from, bytes);
  } else {
    buffer_.insert(buffer_.end(), from, from + bytes);
  }
}

void FileWriter::Close(bool fsync) {
  if (fd_ < 0) throw InternalError(StrCat("file closed twice: ", path_));
  Flush();
  if (fsync && FsyncDescriptor(fd_, path_) != 0) ThrowErrno("flush to disk", path_, errno);
  const int fd = std::exchange(fd_, -1);
  if (CloseDescriptor(fd, path_) != 0) ThrowErrno("close", path_, errno);
}

std::string ReadFile(const std::string& path) {
  struct stat info;
  const int fd = OpenForReading(path, &info);
  // Files of /proc say that they are empty: read to the end, whatever the size.
  std::string out;
  out.reserve(static_cast<size_t>(info.st_size));
  char buffer[65536];
  for (;;) {
    const ssize_t got = RetryInterrupted([&] { return ::read(fd, buffer, sizeof(buffer)); });
    if (got < 0) {
      const int error = errno;
      ::close(fd);
      ThrowUnreadable("read", path, error);
    }
    if (got == 0) break;
    out.append(buffer, static_cast<size_t>(got));
  }
  ::close(fd);
  return out;
}

void WriteFileAtomically(const std::string& path, std::string_view text) {
  const std::string temporary = StrCat(path, ".tmp-", ::getpid());
  try {
    FileWriter writer(temporary);
    writer.Write(text);
    writer.Close(/*fsync=*/true);
    RenamePath(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  FsyncDirectory(DirName(path));
}

void FsyncDirectory(const std::string& path) {
  const int fd = RetryInterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) ThrowErrno("open the directory", path, errno);
  const int result = FsyncDescriptor(fd, path);
  const int error = errno;
  ::close(fd);
  // Some file systems have no fsync of directories and say EINVAL; there is nothing more to do there.
  if (result != 0 && error != EINVAL) ThrowErrno("flush the directory to disk", path, error);
}

void MakeDirectories(const std::string& path) {
  if (path.empty() || path == "/" || path == ".") return;
  struct stat info;
  if (::stat(path.c_str(), &info) == 0) {
    if (!S_ISDIR(info.st_mode)) ThrowErrno("make the directory", path, ENOTDIR);
    return;
  }
  MakeDirectories(DirName(path));
  if (FaultyCall(FileOp::kMkdir, path) == 0 && ::mkdir(path.c_str(), 0755) == 0) return;
  const int error = errno;
  // Another rank may have been quicker.
  if (error == EEXIST && ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return;
  ThrowErrno("make the directory", path, error);
}

bool PathExists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

std::vector<std::string> ListDirectory(const std::string& path) {
  std::vector<std::string> names;
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) {
    if (errno == ENOENT) return names;
    ThrowUnreadable("list", path, errno);
  }
  errno = 0;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  const int error = errno;
  ::closedir(directory);
  if (error != 0) ThrowUnreadable("list", path, error);
  std::sort(names.begin(), names.end());
  return names;
}

void RenamePath(const std::string& from, const std::string& to) {
  if (FaultyCall(FileOp::kRename, to) != 0 || ::rename(from.c_str(), to.c_str()) != 0)
    ThrowErrno(StrCat("rename ", from, " to this").c_str(), to, errno);
}

bool ExchangePaths(const std::string& a, const std::string& b) {
  if (FaultyCall(FileOp::kRename, b) != 0) ThrowErrno(StrCat("exchange with ", a).c_str(), b, errno);
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
  ThrowErrno(StrCat("exchange with ", a).c_str(), b, errno);
}

uint64_t FileSize(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) ThrowUnreadable("look at", path, errno);
  if (!S_ISREG(info.st_mode)) throw DataError("is not a regular file", path);
  return static_cast<uint64_t>(info.st_size);
}

void RemoveTree(const std::string& path) {
  if (!PathExists(path)) return;
  if (FaultyCall(FileOp::kRemove, path) != 0) ThrowErrno("remove", path, errno);
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) ThrowErrno("remove", path, error.value());
}

uint64_t FreeBytes(const std::string& path) {
  if (const int64_t faulty = internal::FaultyFreeBytes(); faulty >= 0) return static_cast<uint64_t>(faulty);
  std::string existing = path;
  while (!existing.empty() && existing != "/" && existing != "." && !PathExists(existing))
    existing = DirName(existing);
  struct statvfs info;
  if (::statvfs(existing.empty() ? "." : existing.c_str(), &info) != 0)
    ThrowUnreadable("ask for the free space", path, errno);
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

std::string JoinPath(const std::string& a, const std::string& b) {
  if (a.empty() || (!b.empty() && b[0] == '/')) return b;
  if (b.empty()) return a;
  return a.back() == '/' ? a + b : a + "/" + b;
}

std::string BaseName(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "" : "/";
  const size_t slash = path.rfind('/', end);
  return path.substr(slash == std::string::npos ? 0 : slash + 1,
                     end - (slash == std::string::npos ? 0 : slash + 1) + 1);
}

std::string DirName(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "." : "/";
  const size_t slash = path.rfind('/', end);
  if (slash == std::string::npos) return ".";
  const size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

}  // namespace yardmaster
